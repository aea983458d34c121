/// Passes frames from the poller that reads the ring to a receive queue of another poller.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engines/packet/gathering.h"
#include "metrics/counters.h"
#include "steering/classifier.h"
#include "system/ring.h"

namespace daqiri::packet {

/// The frames of a queue that another poller serves. They stay in the ring until that poller has
/// copied them, unless the ring is short of memory: then, and where a frame lies in several pieces,
/// the reader copies it.
///
/// A queue is its poller's: what the reader loses is counted there when that poller takes it in.
class HandOver {
 public:
  /// As Gathering.
  HandOver(RxQueue& queue, FrameRing& ring, std::uint64_t late_ns)
      : queue_(queue), ring_(ring), gathering_(queue, ring, late_ns) {}

  // --- Poller that reads the ring.

  /// The frame that the ring's `peek` gave, of which the queue wants all; or lose it.
  void put(const Frame& frame, const steering::Verdict& verdict) noexcept;
  /// Packets that never reach the queue.
  void lose(DropReason reason, std::uint64_t n, std::uint64_t bytes) noexcept;
  /// All that could be read at `now_ns`, CLOCK_MONOTONIC, has been put.
  void note_all_read(std::uint64_t now_ns) noexcept {
    all_read_ns_.store(now_ns, std::memory_order_release);
  }
  /// Wake the queue's poller, if there is something new for it. Once for each pass.
  void wake() noexcept;
  /// Nothing follows.
  void end() noexcept;

  // --- Poller of the queue.

  /// Deliver what has been put. Returns packets seen.
  std::uint32_t receive() noexcept;
  /// Whether there is more to come.
  [[nodiscard]] bool expects_more() const noexcept;

  /// After both have ended: what one of them was too late for is discarded.
  void discard_rest() noexcept;

 private:
  static constexpr std::size_t CAPACITY = 4096;

  /// NOWHERE: no buffer was free; the queue's poller counts it.
  enum class Place : std::uint8_t { RING, BUFFERS, NOWHERE };
  struct Handed {
    /// In the ring.
    std::uint8_t* data;
    std::uint64_t time;
    std::uint32_t length;
    FlowId flow;
    Place place;
    /// Of the ring, or of the queue's regions.
    PacketBuffers buffers;
  };
  /// The thread that loses counts; the other one takes the difference to what it has seen.
  struct Lost {
    std::atomic<std::uint64_t> packets{0};
    std::atomic<std::uint64_t> bytes{0};
    std::uint64_t packets_seen{0};
    std::uint64_t bytes_seen{0};
  };

  void take(const Handed& handed) noexcept;
  /// Returns how many.
  std::uint32_t take_losses() noexcept;
  /// What it was in is not needed any more.
  void give_back(const Handed& handed) noexcept;
  void give_returned() noexcept;

  RxQueue& queue_;
  FrameRing& ring_;
  SpscRing<Handed> handed_{CAPACITY};
  std::array<Lost, NUM_DROP_REASONS> lost_;
  /// Of all reasons, written last.
  std::atomic<std::uint64_t> lost_total_{0};
  std::atomic<bool> ended_{false};
  /// CLOCK_MONOTONIC ns.
  std::atomic<std::uint64_t> all_read_ns_{0};

  // --- Poller that reads the ring.
  bool anything_new_{false};

  // --- Poller of the queue.
  alignas(64) Gathering gathering_;
  std::uint64_t lost_seen_{0};
  /// Buffers of the ring.
  std::array<std::uint32_t, std::size_t{Gathering::MOST} * MAX_NUM_SEGS> returned_;
  std::uint32_t num_returned_{0};
};

}  // namespace daqiri::packet
