/// Receives from a device, and steers packets to the receive queues of a port.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <deque>

#include "engines/dpdk/packet_pool.h"
#include "io/io_engine.h"

namespace daqiri::dpdk {

/// Used by the poller of the port's receive queues.
class Receiver {
 public:
  /// `queues`: those of the device, from 0. Packets are received into the buffers of `pool`.
  Receiver(const Port& port, std::uint16_t device, std::uint16_t queues, const PacketPool& pool);

  /// Returns the number of packets seen.
  std::uint32_t receive() noexcept;
  /// Free what the device still has. The poller has ended.
  void drain() const noexcept;

 private:
  /// Packets that are read from the device together.
  static constexpr std::uint32_t AT_ONCE = 64;

  /// Packets for one queue, with one arrival time.
  struct Target {
    RxQueue& queue;
    /// Its packets stay in the buffers in which they were received; otherwise they are copied.
    bool stay;
    std::uint32_t count{0};
    std::array<std::array<std::uint32_t, AT_ONCE>, MAX_NUM_SEGS> buffers{};
    std::array<std::array<void*, AT_ONCE>, MAX_NUM_SEGS> data{};
    std::array<std::array<std::uint32_t, AT_ONCE>, MAX_NUM_SEGS> lengths{};
    std::array<FlowId, AT_ONCE> flows{};
  };

  [[nodiscard]] Target& target_for(std::uint16_t queue) noexcept;
  /// The packet belongs to the target, or is freed.
  void take(rte_mbuf& packet, const steering::Program& program) noexcept;
  /// The packet in place, less the headers that the verdict removes.
  static void keep(Target& target, const rte_mbuf& packet,
                   const steering::Verdict& verdict) noexcept;
  /// Copy it to buffers of the queue; `frame`: its headers. Returns false if there are no buffers.
  static bool copy(Target& target, const rte_mbuf& packet, const std::uint8_t* frame,
                   const steering::Verdict& verdict) noexcept;
  void deliver(std::uint64_t time) noexcept;
  /// Up to `most` packets of a queue of the device.
  std::uint32_t receive(std::uint16_t queue, std::uint32_t most,
                        const steering::Program& program) noexcept;

  std::uint16_t device_;
  std::uint16_t queues_;
  const PacketPool& pool_;
  steering::Steering::Reader steering_;
  steering::FlowTally& tally_;
  /// In the order of the port's queues.
  std::deque<Target> targets_;
};

}  // namespace daqiri::dpdk
