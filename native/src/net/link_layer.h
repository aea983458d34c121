/// The link layer of recorded packets: the first headers of packets in files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daqiri/burst.h"

namespace daqiri {

struct Burst;

inline constexpr std::uint32_t LINKTYPE_ETHERNET = 1;
inline constexpr std::uint32_t LINKTYPE_RAW = 101;
/// Longest prefix that LinkLayer::prefix writes (IPv6 and TCP headers with some reserve).
inline constexpr std::size_t MAX_LINK_PREFIX = 128;

/// Link type of a port's packets, and the headers for payloads that arrive without them.
class LinkLayer {
 public:
  virtual ~LinkLayer() = default;
  [[nodiscard]] virtual std::uint32_t link_type() const noexcept { return LINKTYPE_ETHERNET; }
  /// Whether `prefix` writes headers that were not received.
  [[nodiscard]] virtual bool reconstructs_headers() const noexcept { return false; }
  /// Whether packets of a burst with equal length have the same prefix.
  [[nodiscard]] virtual bool prefix_repeats() const noexcept { return false; }
  /// Number of bytes that `prefix` writes before a packet of `length` bytes.
  [[nodiscard]] virtual std::uint32_t prefix_size(std::uint32_t /*length*/) const noexcept {
    return 0;
  }
  /// Write the headers of packet `i` to `out` (MAX_LINK_PREFIX bytes). Returns their size. Repeated
  /// calls for the same burst give the same result.
  virtual std::uint32_t prefix(const BurstParams& /*burst*/, std::size_t /*i*/,
                               std::byte* /*out*/) const noexcept {
    return 0;
  }
  /// Called by the owner of a burst for transmission before its first `prefix`: for streams,
  /// assigns the next position in its byte stream (Burst::stream). Later calls have no effect.
  virtual void place_in_stream(Burst& /*burst*/) const noexcept {}
};

}  // namespace daqiri
