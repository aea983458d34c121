/// Transmit flows: which headers are added to which packets.
#pragma once

#include <cstdint>
#include <vector>

#include "daqiri/config.h"
#include "net/transforms.h"
#include "steering/lookup.h"
#include "steering/packet_key.h"

namespace daqiri::steering {

/// The compiled transmit flows of one interface, in file order: the first one that matches a packet
/// from the application is used. A flow without conditions matches all packets; others match
/// packets without VLAN tags that meet the conditions. Packets that no flow matches are sent
/// unchanged.
class TransmitFlows {
 public:
  TransmitFlows() = default;
  /// Throws Error INVALID_PARAMETER if there are more flows than positions.
  explicit TransmitFlows(const InterfaceConfig& config);

  /// Whether there is no flow: every packet is sent unchanged.
  [[nodiscard]] bool empty() const noexcept { return prefixes_.empty(); }
  /// Most bytes put before a packet, and most bytes by which a packet grows.
  [[nodiscard]] std::uint32_t most_headers() const noexcept { return most_headers_; }
  [[nodiscard]] std::uint32_t most_overhead() const noexcept { return most_overhead_; }

  /// Set `out` to the packet as it is sent. `headers` has space for most_headers bytes; `out` may
  /// point to it. Returns errno; not 0: the packet can never be sent.
  int transform(const Burst& burst, std::uint32_t packet, std::uint8_t* headers,
                Pieces& out) const noexcept;

 private:
  int put_in_front(std::uint8_t* headers, Pieces& packet) const noexcept;

  /// By position.
  std::vector<Prefix> prefixes_;
  Lookup lookup_;
  /// The first flow without conditions.
  std::uint16_t all_{NO_FLOW};
  std::uint32_t most_headers_{0};
  std::uint32_t most_overhead_{0};
};

}  // namespace daqiri::steering
