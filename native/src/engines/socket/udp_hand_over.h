/// Passes datagrams from the poller that reads a socket to a receive queue of another poller.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "engines/socket/sockets.h"
#include "io/handed_packets.h"
#include "io/rx_queue.h"

namespace daqiri::sockets {

/// A datagram on its way.
struct HandedDatagram {
  AddressKey peer;
  std::uint64_t time;
  /// On the wire; more than the queue's buffers hold if it was truncated.
  std::uint32_t length;
  FlowId flow;
  /// One per segment of the packet.
  std::array<std::uint32_t, MAX_NUM_SEGS> buffers;
};

/// The datagrams of a queue that another poller serves. The reader copies them to buffers of the
/// queue. If there are none, or the queue's poller is too far behind, they are lost.
class UdpHandOver : public HandedPackets<HandedDatagram> {
 public:
  /// `position`: of the queue in its port.
  UdpHandOver(RxQueue& queue, std::size_t position) : HandedPackets(queue), position_(position) {}

  [[nodiscard]] RxQueue& queue() const noexcept { return queue_; }
  [[nodiscard]] std::size_t position() const noexcept { return position_; }

  /// Poller that reads the socket. `time`: arrival, CLOCK_REALTIME ns.
  void put(const AddressKey& peer, const std::byte* data, std::uint32_t length, FlowId flow,
           std::uint64_t time) noexcept;

  // --- Poller of the queue.

  /// Call in each pass, before `next`. Returns the number of datagrams seen.
  std::uint32_t begin() noexcept;
  /// Returns the number of datagrams in `batch`, all of `peer`; 0: there are no more in this pass.
  std::uint32_t next(RxBatch& batch, AddressKey& peer) noexcept;
  /// Call after both pollers have ended: discard what was not received in time.
  void discard_rest() noexcept;

 private:
  static constexpr std::uint32_t MOST = 64;

  [[nodiscard]] std::uint32_t kept_of(std::uint32_t length) const noexcept {
    return std::min(length, queue_.max_packet_size());
  }
  void note_discards() noexcept;
  void discard(const HandedDatagram& handed, DropReason reason) noexcept;

  std::size_t position_;

  // --- Poller of the queue.
  /// Of this pass: datagrams to take, and what the reader had read before these.
  alignas(64) std::size_t left_{0};
  std::uint64_t read_before_{0};
  /// Datagrams that arrived before this time, CLOCK_REALTIME ns, are discarded; all of them were
  /// put when the reader has read everything after discard_until_, CLOCK_MONOTONIC ns.
  std::uint64_t discard_before_{0};
  std::uint64_t discard_until_{0};
  DropReason discarded_as_{DropReason::FLUSHED};
  std::array<std::array<std::uint32_t, MOST>, MAX_NUM_SEGS> buffers_;
  std::array<std::array<std::uint32_t, MOST>, MAX_NUM_SEGS> lengths_;
  std::array<FlowId, MOST> flows_;
  std::array<std::uint64_t, MOST> times_;
};

}  // namespace daqiri::sockets
