/// Frames of a ring that are being delivered to a receive queue.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "engines/packet/frame.h"
#include "engines/packet/frame_ring.h"
#include "io/rx_queue.h"
#include "steering/classifier.h"

namespace daqiri::packet {

/// For the segments of a packet.
using PacketBuffers = std::array<std::uint32_t, MAX_NUM_SEGS>;

/// Of the queue's regions. False: one has none. Any thread.
bool take_buffers(const RxQueue& queue, PacketBuffers& buffers) noexcept;
/// `length` bytes of the frame, for which there is room.
void copy_to_buffers(const RxQueue& queue, const PacketBuffers& buffers, const Frame& frame,
                     std::uint32_t length) noexcept;
/// The frame without the headers that come off, in its place: nobody looks at it again.
Frame left_over(const Frame& frame, const steering::Verdict& verdict) noexcept;

/// Frames of one flow order for one queue, delivered together. By the poller of the queue.
class Gathering {
 public:
  static constexpr std::uint32_t MOST = 64;

  /// What was asked to be discarded may be in the ring to be read until `late_ns` after that.
  Gathering(RxQueue& queue, FrameRing& ring, std::uint64_t late_ns)
      : queue_(queue), ring_(ring), late_ns_(late_ns) {}

  [[nodiscard]] RxQueue& queue() const noexcept { return queue_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

  /// At the beginning of a pass: what is to be discarded, and what had come by then and was not
  /// read when that was asked for.
  void note_discards(std::uint64_t now_ns) noexcept;
  /// At its end: all that could be read at `now_ns`, CLOCK_MONOTONIC, has been put here.
  void note_all_read(std::uint64_t now_ns) noexcept {
    // A clock that is set back does no harm.
    if (now_ns > discard_until_) discard_before_ = 0;
  }
  /// Whether a frame of this arrival is to be discarded.
  [[nodiscard]] bool discards(std::uint64_t time) const noexcept { return time < discard_before_; }
  [[nodiscard]] DropReason discarded_as() const noexcept { return discarded_as_; }

  /// What is added next stays in the ring, or does not. Delivers what is there where that differs.
  void begin(bool kept) noexcept {
    if (count_ > 0 && kept_ != kept) deliver();
    kept_ = kept;
    if (count_ == 0) room_ = MOST;
  }
  /// Deliver as soon as so many are there.
  void limit(std::uint32_t room) noexcept { room_ = std::min(room_, room); }
  /// `length` bytes of a frame: at `data` in the ring, if it stays there, else in the buffers.
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
  /// More than so many are not taken.
  std::uint32_t room_{MOST};
  /// They stay in the ring.
  bool kept_{false};
  /// What came before this time, CLOCK_REALTIME ns, is discarded; all of it can be read from
  /// CLOCK_MONOTONIC ns on.
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
