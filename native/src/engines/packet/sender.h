/// Sends packets to a network interface.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <vector>

#include "engines/packet/interface.h"
#include "io/io_engine.h"
#include "steering/transmit_flows.h"

namespace daqiri::packet {

/// Sends for one transmit queue, bypassing the interface's queueing discipline
/// (PACKET_QDISC_BYPASS).
class Sender {
 public:
  static constexpr std::uint32_t BATCH = 64;
  /// Bytes that the kernel may hold for the interface.
  static constexpr int SEND_BUFFER = 4 << 20;

  /// `flows`: those of the port. Throws Error.
  Sender(const NetworkInterface& interface, const TxQueue& queue,
         const steering::TransmitFlows& flows);

  /// See PortIo::transmit. Nothing tells when a device that was full takes frames again: without a
  /// queueing discipline its refusal is ENOBUFS, for which poll(2) knows no event.
  TransmitResult send(Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  void close() noexcept { socket_.close(); }

 private:
  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  /// Make a message from a packet. Returns errno; not 0: the packet can never be sent.
  int prepare(const Burst& burst, std::uint32_t packet, std::uint32_t message) noexcept;
  /// Whether the link is down; queried at intervals when sending fails.
  [[nodiscard]] bool link_is_down() noexcept;

  NetworkInterface interface_;
  /// Offload tx_eth_src: set the interface's address as the source of packets.
  bool fills_source_mac_;
  const steering::TransmitFlows& flows_;
  File socket_;
  /// State of the link when it was last queried.
  std::uint64_t asked_ns_{0};
  bool down_{false};
  std::array<mmsghdr, BATCH> messages_{};
  std::array<Pieces, BATCH> packets_{};
  /// Headers that the flows put before each message.
  std::vector<std::uint8_t> headers_;
};

}  // namespace daqiri::packet
