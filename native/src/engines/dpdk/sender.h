/// Sends from one transmit queue to one queue of a device.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engines/dpdk/card_clock.h"
#include "engines/dpdk/packet_pool.h"
#include "engines/dpdk/packet_sockets.h"
#include "engines/dpdk/removal.h"
#include "io/io_engine.h"
#include "net/interface_link.h"
#include "net/transforms.h"
#include "steering/transmit_flows.h"

namespace daqiri::dpdk {

/// Used by the worker of the queue. The device reads packets in the buffers of their bursts, and
/// tells when it has read them, in any order and from any thread.
class Sender {
 public:
  /// Most packets of one call.
  static constexpr std::uint32_t AT_ONCE = 64;

  /// A port's device, and the queue's number there.
  struct Place {
    std::uint16_t device;
    std::uint16_t queue;
    /// Packets that the device may have at once.
    std::uint32_t descriptors;
    /// Longest packet.
    std::uint32_t most_bytes;
    int socket;
    std::array<std::uint8_t, 6> mac;
    /// Of the device that keeps launch times; null: it sends at once.
    const CardClock* clock;
    /// Of a device that is a network interface of the kernel; else null.
    const InterfaceLink* link;
    /// Of a net_af_packet; else null.
    const PacketSockets* sockets;
  };

  /// `flows`: those of the port. `removed`: see DeviceUse. Throws Error.
  Sender(const Place& place, const TxQueue& queue, const steering::TransmitFlows& flows,
         const std::atomic<bool>& removed);

  /// The device has started.
  void start() noexcept;
  /// See PortIo::transmit.
  TransmitResult send(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  /// See PortIo::completed.
  TransmitCompletion completed(bool last) noexcept;
  /// After the device was removed: whether `send` or `completed` still uses it. Any thread.
  [[nodiscard]] bool uses_device() const noexcept { return use_.active(); }
  /// The device was closed: it reads no packet any longer.
  void note_closed() noexcept { closed_.store(true, std::memory_order_release); }

 private:
  /// When the next packet of a paced queue may leave.
  struct Pace {
    /// CLOCK_MONOTONIC, ns.
    std::uint64_t next{0};
    /// See wire_ns.
    std::uint64_t rest{0};
  };

  /// The time of a packet that is sent after those with `pace`; none: the device would hold it for
  /// long, so it has to wait here.
  [[nodiscard]] static std::optional<std::uint64_t> paced(
      std::uint64_t launch, const Pace& pace, const CardClock::Launches& launches) noexcept;
  /// Give packets to the device, which is there.
  TransmitResult put(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  /// Returns the errno with which every packet would be lost now, or 0. The drivers of interfaces
  /// of the kernel accept packets that it refuses.
  int check_link() noexcept;
  /// Make packet `number` of all from a packet of the burst. Returns errno; not 0: it can never be
  /// sent; EAGAIN: not now.
  int prepare(const Burst& burst, std::uint32_t packet, std::uint32_t number,
              rte_mbuf*& out) noexcept;
  /// Have the device send what it has accepted, and release what it has read.
  void ask() noexcept;
  /// Release packets that were read, up to the first that was not. Returns their number.
  std::uint32_t release() noexcept;

  Place place_;
  DeviceUse use_;
  std::atomic<bool> closed_{false};
  std::string name_;
  /// Offload tx_eth_src: set the port's address as the source of packets.
  bool fills_source_mac_;
  /// What the device keeps within, by launch times; 0: it does not.
  std::uint32_t pacing_mbps_;
  Pace pace_;
  const steering::TransmitFlows& flows_;
  /// Whether the device can be asked to release what it has read.
  bool tells_on_request_{false};
  /// Packets that the device may have at once, or has read and not freed: a power of two.
  std::uint32_t size_;
  SendPool mbufs_;
  /// By number, modulo size: headers that flows put before the packet, in memory that the device
  /// can read.
  DeviceMemory headers_;
  /// Numbers of the next packet, and of the oldest that is not released.
  std::uint32_t next_{0};
  std::uint32_t oldest_{0};
  /// Accepted by the device, and not reported by `completed`.
  std::uint32_t accepted_{0};
  std::uint64_t accepted_bytes_{0};
  /// The kernel has not taken all of them from the driver.
  bool stuck_{false};
  /// Longest packet; without an 802.1Q tag.
  std::uint32_t most_bytes_;
  std::uint32_t most_untagged_;
};

}  // namespace daqiri::dpdk
