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

/// Sends for one transmit queue, past the interface's queueing discipline (PACKET_QDISC_BYPASS).
class Sender {
 public:
  static constexpr std::uint32_t BATCH = 64;
  /// What the kernel may hold for the interface.
  static constexpr int SEND_BUFFER = 4 << 20;

  /// `flows` are the port's. Throws Error.
  Sender(const NetworkInterface& interface, const TxQueue& queue,
         const steering::TransmitFlows& flows);

  /// Writable when `send` may take packets.
  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  /// As PortIo::transmit.
  TransmitResult send(Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  void close() noexcept { socket_.close(); }

 private:
  /// Makes a message of a packet. Returns errno; not 0: it can never be sent.
  int prepare(const Burst& burst, std::uint32_t packet, std::uint32_t message) noexcept;
  /// Whether nothing can leave; asked for once in a while when nothing does.
  [[nodiscard]] bool link_is_down() noexcept;

  NetworkInterface interface_;
  /// Offload tx_eth_src: packets get the interface's address as their source.
  bool fills_source_mac_;
  const steering::TransmitFlows& flows_;
  File socket_;
  /// As the link was when it was asked for.
  std::uint64_t asked_ns_{0};
  bool down_{false};
  std::array<mmsghdr, BATCH> messages_{};
  std::array<Pieces, BATCH> packets_{};
  /// Of each message, what the flows put in front.
  std::vector<std::uint8_t> headers_;
};

}  // namespace daqiri::packet
