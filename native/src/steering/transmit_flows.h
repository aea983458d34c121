/// Transmit flows: which headers are added to which packets.
#pragma once

#include <cstdint>
#include <vector>

#include "daqiri/config.h"
#include "net/transforms.h"
#include "steering/lookup.h"
#include "steering/packet_key.h"

namespace daqiri::steering {

/// The transmit flows of one interface, compiled. In file order: the first that matches a packet as
/// the application gives it wins. One without conditions matches all packets, another those without
/// VLAN tags that its conditions hold for. Packets that no flow matches leave as they are.
class TransmitFlows {
 public:
  TransmitFlows() = default;
  /// Throws Error INVALID_PARAMETER where there are more flows than positions.
  explicit TransmitFlows(const InterfaceConfig& config);

  /// No flow: every packet leaves as it is.
  [[nodiscard]] bool empty() const noexcept { return prefixes_.empty(); }
  /// Most bytes that are put in front of a packet, and most bytes by which one grows.
  [[nodiscard]] std::uint32_t most_headers() const noexcept { return most_headers_; }
  [[nodiscard]] std::uint32_t most_overhead() const noexcept { return most_overhead_; }

  /// Makes `out` the packet as it leaves. `headers` has room for most_headers bytes, which `out`
  /// may point to. Returns errno; not 0: it can never be sent.
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
