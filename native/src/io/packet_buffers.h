/// Buffers for packets of a receive queue.
#pragma once

#include <algorithm>
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

/// Takes buffers of every region of the queue for up to `n` packets, to `numbers[region]` from `at`
/// on. Returns the number of packets.
template <typename Numbers>
std::uint32_t take_buffers(const RxQueue& queue, Numbers* numbers, std::uint32_t at,
                           std::uint32_t n) noexcept {
  std::array<std::uint32_t, MAX_NUM_SEGS> counts{};
  for (int s = 0; s < queue.num_segments(); ++s) {
    counts[s] = queue.region(s).take(&numbers[s][at], n);
    n = counts[s];
  }
  // A packet needs a buffer of every region.
  for (int s = 0; s < queue.num_segments(); ++s) {
    if (counts[s] > n) queue.region(s).give(&numbers[s][at + n], counts[s] - n);
  }
  return n;
}

/// Buffers of a queue's regions, taken many at once: other threads give and take, too, and each
/// access to the list of free ones costs as much as a copy of a short packet. Used by one thread.
class PacketBufferStock {
 public:
  /// Take one buffer of each region. If there are none here, up to `most` are taken from the
  /// regions. Returns false if a region has none.
  bool take(const RxQueue& queue, std::uint32_t most, PacketBuffers& buffers) noexcept {
    if (next_ == count_) {
      next_ = 0;
      count_ = take_buffers(queue, stock_.data(), 0, std::min(most, MOST));
      if (count_ == 0) return false;
    }
    for (std::size_t s = 0; s < static_cast<std::size_t>(queue.num_segments()); ++s)
      buffers[s] = stock_[s][next_];
    ++next_;
    return true;
  }
  /// The buffer of the first region that is taken `n` calls after this one; null: not known yet.
  [[nodiscard]] const void* ahead(const RxQueue& queue, std::uint32_t n) const noexcept {
    return next_ + n < count_ ? queue.region(0).address(stock_[0][next_ + n]) : nullptr;
  }
  /// Give back those that were not used.
  void give_back(const RxQueue& queue) noexcept {
    const std::uint32_t rest = count_ - next_;
    for (int s = 0; rest > 0 && s < queue.num_segments(); ++s)
      queue.region(s).give(&stock_[static_cast<std::size_t>(s)][next_], rest);
    next_ = count_ = 0;
  }

 private:
  static constexpr std::uint32_t MOST = 64;

  /// In the order in which they were taken (see FreeList::take): those from `next_` to `count_`.
  std::uint32_t next_{0};
  std::uint32_t count_{0};
  std::array<std::array<std::uint32_t, MOST>, MAX_NUM_SEGS> stock_;
};

}  // namespace daqiri
