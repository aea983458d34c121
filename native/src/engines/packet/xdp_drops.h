/// Frames that the kernel or the card has dropped for want of AF_XDP memory.
#pragma once

#include <linux/if_xdp.h>

#include <cstdint>
#include <utility>

namespace daqiri::packet {

struct XdpDrops {
  std::uint64_t counted{0};
  /// More were dropped, and no one has counted them.
  bool uncounted{false};
};

/// Drops between calls, from the counters of a socket (XDP_STATISTICS).
class XdpStatistics {
 public:
  /// `ran_out`: every chunk of the kernel had a frame at some time since the last call.
  XdpDrops take(const xdp_statistics& now, bool zero_copy, bool ran_out) noexcept {
    // If the kernel copies, `rx_dropped` includes frames for which the fill ring was empty. With
    // zero copy the card drops them, and the kernel counts only how often its driver found the ring
    // empty: also while the card still has chunks.
    const std::uint64_t all = now.rx_dropped + now.rx_ring_full;
    const std::uint64_t empty = now.rx_fill_ring_empty_descs;
    const bool found_empty = empty != std::exchange(empty_, empty);
    return {.counted = all - std::exchange(counted_, all),
            .uncounted = zero_copy && ran_out && found_empty};
  }

 private:
  std::uint64_t counted_{0};
  std::uint64_t empty_{0};
};

}  // namespace daqiri::packet
