/// The link layer of recorded packets: the headers that a packet in a file begins with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daqiri/burst.h"

namespace daqiri {

struct Burst;

inline constexpr std::uint32_t LINKTYPE_ETHERNET = 1;
inline constexpr std::uint32_t LINKTYPE_RAW = 101;
/// Longest prefix that LinkLayer::prefix writes (IPv6 and TCP headers with room to spare).
inline constexpr std::size_t MAX_LINK_PREFIX = 128;

/// Link type of a port's packets, and the headers to put before payloads that arrive without them.
class LinkLayer {
 public:
  virtual ~LinkLayer() = default;
  [[nodiscard]] virtual std::uint32_t link_type() const noexcept { return LINKTYPE_ETHERNET; }
  /// True when prefix writes headers that were not seen on the wire.
  [[nodiscard]] virtual bool reconstructs_headers() const noexcept { return false; }
  /// True when packets of a burst that are equally long have the same prefix.
  [[nodiscard]] virtual bool prefix_repeats() const noexcept { return false; }
  /// Bytes that prefix writes before a packet of `length` bytes.
  [[nodiscard]] virtual std::uint32_t prefix_size(std::uint32_t /*length*/) const noexcept {
    return 0;
  }
  /// Write the headers of packet `i` to `out` (MAX_LINK_PREFIX bytes). Returns their size. The same
  /// for the same burst, however often it is asked.
  virtual std::uint32_t prefix(const BurstParams& /*burst*/, std::size_t /*i*/,
                               std::byte* /*out*/) const noexcept {
    return 0;
  }
  /// To be called by the owner of a burst to transmit before its first `prefix`: gives it the next
  /// place in its byte stream (Burst::stream), where packets are a stream's. Later calls change
  /// nothing.
  virtual void place_in_stream(Burst& /*burst*/) const noexcept {}
};

}  // namespace daqiri
