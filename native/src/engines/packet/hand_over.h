/// Passes frames from the poller that reads the ring to a receive queue of another poller.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engines/packet/gathering.h"
#include "io/handed_losses.h"
#include "steering/classifier.h"
#include "system/ring.h"

namespace daqiri::packet {

/// The frames of a queue that another poller serves. They stay in the ring until that poller has
/// copied them. If the ring is short of memory, or a frame is not contiguous, the reader copies it.
///
/// Only its poller changes a queue: frames that the reader drops are counted when that poller
/// receives.
class HandOver {
 public:
  /// As for Gathering.
  HandOver(RxQueue& queue, FrameRing& ring, std::uint64_t late_ns)
      : queue_(queue), ring_(ring), gathering_(queue, ring, late_ns) {}

  // --- Poller that reads the ring.

  /// Put the frame of the ring's `peek`, which fits the queue completely, or drop it.
  void put(const Frame& frame, const steering::Verdict& verdict) noexcept;
  /// Count packets that never reach the queue.
  void lose(DropReason reason, std::uint64_t n, std::uint64_t bytes) noexcept;
  /// All frames that were readable at `now_ns`, CLOCK_MONOTONIC, were put.
  void note_all_read(std::uint64_t now_ns) noexcept {
    all_read_ns_.store(now_ns, std::memory_order_release);
  }
  /// Wake the queue's poller if there is something new for it. Call once per pass.
  void wake() noexcept;
  /// No more frames follow.
  void end() noexcept;

  // --- Poller of the queue.

  /// Deliver the frames that were put. Returns the number of packets seen.
  std::uint32_t receive() noexcept;
  /// Whether more frames follow.
  [[nodiscard]] bool expects_more() const noexcept;

  /// Call after both pollers have ended: discard what was not received in time.
  void discard_rest() noexcept;

 private:
  static constexpr std::size_t CAPACITY = 4096;

  /// NOWHERE: no buffer was free; the queue's poller counts the loss.
  enum class Place : std::uint8_t { RING, BUFFERS, NOWHERE };
  struct Handed {
    /// Address in the ring.
    std::uint8_t* data;
    std::uint64_t time;
    std::uint32_t length;
    FlowId flow;
    Place place;
    /// Buffer numbers in the ring, or in the queue's regions.
    PacketBuffers buffers;
  };
  void take(const Handed& handed) noexcept;
  /// Free the memory of a frame.
  void give_back(const Handed& handed) noexcept;
  void give_returned() noexcept;

  RxQueue& queue_;
  FrameRing& ring_;
  SpscRing<Handed> handed_{CAPACITY};
  HandedLosses losses_;
  std::atomic<bool> ended_{false};
  /// CLOCK_MONOTONIC ns.
  std::atomic<std::uint64_t> all_read_ns_{0};

  // --- Poller that reads the ring.
  bool anything_new_{false};

  // --- Poller of the queue.
  alignas(64) Gathering gathering_;
  /// Buffers of the ring to free.
  std::array<std::uint32_t, std::size_t{Gathering::MOST} * MAX_NUM_SEGS> returned_;
  std::uint32_t num_returned_{0};
};

}  // namespace daqiri::packet
