/// Buffers for packets of a receive queue.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "io/rx_queue.h"

namespace daqiri {

/// One buffer number per segment of a packet.
using PacketBuffers = std::array<std::uint32_t, MAX_NUM_SEGS>;

/// Take one buffer from each of the queue's regions. Returns false if a region has none. Any
/// thread.
inline bool take_buffers(const RxQueue& queue, PacketBuffers& buffers) noexcept {
  const int segments = queue.num_segments();
  for (int s = 0; s < segments; ++s) {
    if (queue.region(s).take(&buffers[static_cast<std::size_t>(s)], 1) == 1) continue;
    for (int t = 0; t < s; ++t) queue.region(t).give(&buffers[static_cast<std::size_t>(t)], 1);
    return false;
  }
  return true;
}

}  // namespace daqiri
