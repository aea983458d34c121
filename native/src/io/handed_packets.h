/// Packets on their way from the poller that reads them to a receive queue of another poller.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "io/handed_losses.h"
#include "io/rx_queue.h"
#include "system/ring.h"

namespace daqiri {

/// What engines that hand packets over have in common; `Handed` describes one packet. Only its
/// poller changes a queue: packets that the reader drops are counted when that poller receives.
template <typename Handed>
class HandedPackets {
 public:
  // --- Poller that reads.

  /// Count packets that never reach the queue.
  void lose(DropReason reason, std::uint64_t n, std::uint64_t bytes) noexcept {
    losses_.lose(reason, n, bytes);
    anything_new_ = true;
  }
  /// All packets that were readable at `now_ns`, CLOCK_MONOTONIC, were put.
  void note_all_read(std::uint64_t now_ns) noexcept {
    all_read_ns_.store(now_ns, std::memory_order_release);
  }
  /// Wake the queue's poller if there is something new for it. Call once per pass.
  void wake() noexcept {
    if (std::exchange(anything_new_, false)) queue_.poller_doorbell->ring();
  }
  /// No more packets follow.
  void end() noexcept {
    ended_.store(true, std::memory_order_release);
    queue_.poller_doorbell->ring();
  }

  // --- Poller of the queue.

  /// Whether more packets follow.
  [[nodiscard]] bool expects_more() const noexcept {
    // In this order, so that packets put before the end are seen.
    return !ended_.load(std::memory_order_acquire) || handed_.ready() > 0 || losses_.any();
  }

 protected:
  explicit HandedPackets(RxQueue& queue) : queue_(queue) {}

  // --- Poller that reads.

  /// Space for a packet, which `publish` puts; null: there is none.
  Handed* claim() noexcept { return handed_.claim(); }
  void publish() noexcept {
    handed_.publish();
    anything_new_ = true;
  }

  // --- Poller of the queue.

  struct Pass {
    /// Number of packets to take, and of those that were lost.
    std::size_t packets;
    std::uint32_t lost;
    /// When the reader had last read everything, if these are all that it had put; 0: they are not.
    std::uint64_t read_before;
  };
  /// Counts losses.
  Pass begin_pass() noexcept {
    const std::uint32_t lost = losses_.take(queue_);
    // Read before the number of packets put until then.
    const std::uint64_t all_read_ns = all_read_ns_.load(std::memory_order_acquire);
    const std::size_t put = handed_.ready();
    const std::size_t packets = std::min(put, MOST_PER_PASS);
    return {packets, lost, packets == put ? all_read_ns : 0};
  }
  [[nodiscard]] const Handed& at(std::size_t i) noexcept { return handed_.at(i); }
  void consume(std::size_t n) noexcept { handed_.consume(n); }
  /// Call after both pollers have ended: `discard` each packet that was not received in time.
  template <typename Discard>
  void discard_all(Discard discard) noexcept {
    std::uint32_t found = losses_.take(queue_);
    for (; handed_.ready() > 0; handed_.consume(1), ++found) discard(handed_.at(0));
    if (found > 0) queue_.end_pass();
  }

  RxQueue& queue_;

 private:
  static constexpr std::size_t CAPACITY = 4096;
  /// Limit for one pass, so that the poller's other work is not delayed.
  static constexpr std::size_t MOST_PER_PASS = 1024;

  SpscRing<Handed> handed_{CAPACITY};
  HandedLosses losses_;
  std::atomic<bool> ended_{false};
  /// CLOCK_MONOTONIC ns.
  std::atomic<std::uint64_t> all_read_ns_{0};
  /// Of the poller that reads.
  bool anything_new_{false};
};

}  // namespace daqiri
