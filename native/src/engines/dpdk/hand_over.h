/// Passes packets from the poller that reads a queue of the device to a receive queue of another
/// poller.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "io/handed_packets.h"
#include "io/packet_buffers.h"
#include "io/rx_queue.h"

namespace daqiri::dpdk {

/// A packet in buffers of a receive queue's regions, one per segment.
struct PlacedPacket {
  PacketBuffers buffers;
  std::array<void*, MAX_NUM_SEGS> data;
  std::array<std::uint32_t, MAX_NUM_SEGS> lengths;
  FlowId flow;
};

/// Collects packets for one delivery.
class Batch {
 public:
  static constexpr std::uint32_t MOST = 128;

  /// A packet in one buffer. There is space. `time`: CLOCK_REALTIME ns.
  void add(std::uint32_t buffer, void* data, std::uint32_t length, FlowId flow,
           std::uint64_t time) noexcept {
    buffers_[0][count_] = buffer;
    data_[0][count_] = data;
    lengths_[0][count_] = length;
    flows_[count_] = flow;
    times_[count_] = time;
    ++count_;
  }
  /// As before.
  void add(const PlacedPacket& packet, std::size_t segments, std::uint64_t time) noexcept {
    for (std::size_t s = 0; s < segments; ++s) {
      buffers_[s][count_] = packet.buffers[s];
      data_[s][count_] = packet.data[s];
      lengths_[s][count_] = packet.lengths[s];
    }
    flows_[count_] = packet.flow;
    times_[count_] = time;
    ++count_;
  }
  /// Where the next packets of one buffer are put that `add` then adds.
  struct Places {
    std::uint32_t* buffers;
    void** data;
    std::uint32_t* lengths;
    /// CLOCK_REALTIME ns.
    std::uint64_t* times;
  };
  [[nodiscard]] Places places() noexcept {
    return {.buffers = &buffers_[0][count_],
            .data = &data_[0][count_],
            .lengths = &lengths_[0][count_],
            .times = &times_[count_]};
  }
  void add(std::uint32_t packets, FlowId flow) noexcept {
    std::fill_n(&flows_[count_], packets, flow);
    count_ += packets;
  }
  void deliver(RxQueue& queue) noexcept;

 private:
  std::uint32_t count_{0};
  std::array<std::array<std::uint32_t, MOST>, MAX_NUM_SEGS> buffers_;
  std::array<std::array<void*, MOST>, MAX_NUM_SEGS> data_;
  std::array<std::array<std::uint32_t, MOST>, MAX_NUM_SEGS> lengths_;
  std::array<FlowId, MOST> flows_;
  std::array<std::uint64_t, MOST> times_;
};

struct HandedPacket {
  PlacedPacket packet;
  /// When it was received, CLOCK_REALTIME ns.
  std::uint64_t time;
};

/// The packets of a queue that another poller serves.
class HandOver : public HandedPackets<HandedPacket> {
 public:
  explicit HandOver(RxQueue& queue) : HandedPackets(queue) {}

  // --- Poller that reads.

  using HandedPackets::claim;
  using HandedPackets::publish;

  // --- Poller of the queue.

  /// Deliver the packets that were put. Returns the number of packets seen.
  std::uint32_t receive() noexcept;
  /// Call after both pollers have ended: discard what was not received in time.
  void discard_rest() noexcept;

 private:
  void discard(const HandedPacket& handed) noexcept;

  // --- Poller of the queue.
  alignas(64) Batch batch_;
};

}  // namespace daqiri::dpdk
