/// Passes frames from the poller that reads the ring to a receive queue of another poller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engines/packet/gathering.h"
#include "io/handed_packets.h"
#include "steering/classifier.h"

namespace daqiri::packet {

/// A frame on its way.
struct HandedFrame {
  /// NOWHERE: no buffer was free; the queue's poller counts the loss.
  enum class Place : std::uint8_t { RING, BUFFERS, NOWHERE };

  /// Address in the ring.
  std::uint8_t* data;
  std::uint64_t time;
  std::uint32_t length;
  FlowId flow;
  Place place;
  /// Buffer numbers in the ring, or in the queue's regions.
  PacketBuffers buffers;
};

/// The frames of a queue that another poller serves. They stay in the ring until that poller has
/// copied them. If the ring is short of memory, or a frame is not contiguous, the reader copies it.
class HandOver : public HandedPackets<HandedFrame> {
 public:
  /// As for Gathering.
  HandOver(RxQueue& queue, FrameRing& ring, std::uint64_t late_ns)
      : HandedPackets(queue), ring_(ring), gathering_(queue, ring, late_ns) {}

  /// Poller that reads the ring: put the frame of the ring's `peek`, which fits the queue
  /// completely, or drop it.
  void put(const Frame& frame, const steering::Verdict& verdict) noexcept;

  // --- Poller of the queue.

  /// Deliver the frames that were put. Returns the number of packets seen.
  std::uint32_t receive() noexcept;
  /// Call after both pollers have ended: discard what was not received in time.
  void discard_rest() noexcept;

 private:
  using Place = HandedFrame::Place;

  void take(const HandedFrame& handed) noexcept;
  /// Free the memory of a frame.
  void give_back(const HandedFrame& handed) noexcept;
  void give_returned() noexcept;

  FrameRing& ring_;

  // --- Poller of the queue.
  alignas(64) Gathering gathering_;
  /// Buffers of the ring to free.
  std::array<std::uint32_t, std::size_t{Gathering::MOST} * MAX_NUM_SEGS> returned_;
  std::uint32_t num_returned_{0};
};

}  // namespace daqiri::packet
