/// Collects frames of a ring and delivers them to a receive queue.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "engines/packet/frame.h"
#include "engines/packet/frame_ring.h"
#include "io/packet_buffers.h"
#include "io/rx_queue.h"
#include "steering/classifier.h"

namespace daqiri::packet {

/// Copy `length` bytes of the frame, for which the buffers have space.
void copy_to_buffers(const RxQueue& queue, const PacketBuffers& buffers, const Frame& frame,
                     std::uint32_t length) noexcept;
/// The frame without the headers to remove; changed in place, because the original is not read
/// again.
Frame left_over(const Frame& frame, const steering::Verdict& verdict) noexcept;

/// Frames for one queue, in order, delivered together. Used by the poller of the queue.
class Gathering {
 public:
  static constexpr std::uint32_t MOST = 64;

  /// Frames that must be discarded may be readable in the ring until `late_ns` after the request.
  Gathering(RxQueue& queue, FrameRing& ring, std::uint64_t late_ns)
      : queue_(queue), ring_(ring), late_ns_(late_ns) {}

  [[nodiscard]] RxQueue& queue() const noexcept { return queue_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

  /// Call at the beginning of a pass: note what to discard, including frames that had arrived
  /// before the request but were not read.
  void note_discards(std::uint64_t now_ns) noexcept;
  /// Call at the end of a pass: all frames that were readable at `now_ns`, CLOCK_MONOTONIC, were
  /// added.
  void note_all_read(std::uint64_t now_ns) noexcept {
    // Also correct if the realtime clock is set back.
    if (now_ns > discard_until_) discard_before_ = 0;
  }
  /// Whether to discard a frame with this arrival time.
  [[nodiscard]] bool discards(std::uint64_t time) const noexcept { return time < discard_before_; }
  [[nodiscard]] DropReason discarded_as() const noexcept { return discarded_as_; }

  /// Whether the next frames stay in the ring. Delivers the collected frames if this changes.
  void begin(bool kept) noexcept {
    if (count_ > 0 && kept_ != kept) deliver();
    kept_ = kept;
    if (count_ == 0) room_ = MOST;
  }
  /// Deliver when this many frames are collected.
  void limit(std::uint32_t room) noexcept { room_ = std::min(room_, room); }
  /// Add `length` bytes of a frame: at `data` in the ring if it stays there, otherwise in the
  /// buffers.
  void add(const PacketBuffers& buffers, std::uint8_t* data, std::uint32_t length, FlowId flow,
           std::uint64_t time) noexcept;
  void deliver() noexcept;

 private:
  template <typename T>
  using BySegment = std::array<std::array<T, MOST>, MAX_NUM_SEGS>;

  RxQueue& queue_;
  FrameRing& ring_;
  std::uint64_t late_ns_;
  std::uint32_t count_{0};
  /// Most frames to collect.
  std::uint32_t room_{MOST};
  /// Whether the frames stay in the ring.
  bool kept_{false};
  /// Frames that arrived before this time, CLOCK_REALTIME ns, are discarded; all of them are
  /// readable after discard_until_, CLOCK_MONOTONIC ns.
  std::uint64_t discard_before_{0};
  std::uint64_t discard_until_{0};
  DropReason discarded_as_{DropReason::FLUSHED};
  BySegment<std::uint32_t> buffers_;
  BySegment<void*> data_;
  BySegment<std::uint32_t> lengths_;
  std::array<FlowId, MOST> flows_;
  std::array<std::uint64_t, MOST> times_;
};

}  // namespace daqiri::packet
