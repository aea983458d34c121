/// The headers that go before the packets of one burst.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "burst/burst.h"
#include "net/link_layer.h"

namespace daqiri {

/// Written once for neighbours that have the same.
class PacketPrefixes {
 public:
  PacketPrefixes(const LinkLayer& link, const Burst& burst) noexcept
      : link_(link),
        burst_(burst),
        none_(!link.reconstructs_headers()),
        repeats_(link.prefix_repeats()) {}

  /// As LinkLayer::prefix.
  std::uint32_t write(std::uint32_t packet, std::byte* out) noexcept {
    if (none_) return 0;
    if (!repeats_) return link_.prefix(burst_, packet, out);
    const std::uint32_t length = burst_.packet_length(packet);
    if (size_ == 0 || length != length_) {
      size_ = link_.prefix(burst_, packet, latest_.data());
      length_ = length;
    }
    std::memcpy(out, latest_.data(), size_);
    return size_;
  }

 private:
  const LinkLayer& link_;
  const Burst& burst_;
  bool none_;
  bool repeats_;
  /// Prefix of the latest packet, and how long that packet was; size 0: none yet.
  std::array<std::byte, MAX_LINK_PREFIX> latest_;
  std::uint32_t size_{0};
  std::uint32_t length_{0};
};

}  // namespace daqiri
