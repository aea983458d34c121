/// Losses that another thread than the queue's poller finds.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "io/rx_queue.h"

namespace daqiri {

/// Packets for a queue that one thread drops; the queue's poller, which alone changes its counters,
/// counts them.
class HandedLosses {
 public:
  /// The thread that drops packets.
  void lose(DropReason reason, std::uint64_t n, std::uint64_t bytes) noexcept {
    const auto add = [](std::atomic<std::uint64_t>& count, std::uint64_t more) {
      count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_release);
    };
    Lost& lost = lost_[static_cast<std::size_t>(reason)];
    add(lost.packets, n);
    add(lost.bytes, bytes);
    add(total_, n);
  }

  /// The queue's poller: count what was lost since the last call. Returns the number of packets.
  std::uint32_t take(RxQueue& queue) noexcept {
    const std::uint64_t total = total_.load(std::memory_order_acquire);
    if (total == total_seen_) return 0;
    for (std::size_t i = 0; i < lost_.size(); ++i) {
      Lost& lost = lost_[i];
      const std::uint64_t packets = lost.packets.load(std::memory_order_acquire);
      const std::uint64_t bytes = lost.bytes.load(std::memory_order_acquire);
      if (packets == lost.packets_seen && bytes == lost.bytes_seen) continue;
      queue.drop(static_cast<DropReason>(i), packets - std::exchange(lost.packets_seen, packets),
                 bytes - std::exchange(lost.bytes_seen, bytes));
    }
    return static_cast<std::uint32_t>(total - std::exchange(total_seen_, total));
  }
  [[nodiscard]] bool any() const noexcept {
    return total_.load(std::memory_order_acquire) != total_seen_;
  }

 private:
  /// The poller adds the difference to what it has seen.
  struct Lost {
    std::atomic<std::uint64_t> packets{0};
    std::atomic<std::uint64_t> bytes{0};
    std::uint64_t packets_seen{0};
    std::uint64_t bytes_seen{0};
  };

  std::array<Lost, NUM_DROP_REASONS> lost_;
  /// Sum over all reasons, written last.
  std::atomic<std::uint64_t> total_{0};
  std::uint64_t total_seen_{0};
};

}  // namespace daqiri
