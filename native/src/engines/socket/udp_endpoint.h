/// One interface on a UDP socket.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engines/socket/peer_channels.h"
#include "engines/socket/udp_receiver.h"
#include "engines/socket/udp_sender.h"
#include "engines/socket/udp_socket.h"
#include "session/port.h"

namespace daqiri::sockets {

/// The socket with its receiver, one sender per transmit queue, and its connections.
class UdpEndpoint {
 public:
  /// Opens the socket. Throws Error.
  explicit UdpEndpoint(const Port& port);
  UdpEndpoint(const UdpEndpoint&) = delete;
  UdpEndpoint& operator=(const UdpEndpoint&) = delete;

  std::uint32_t receive(const RxQueue& queue) noexcept;
  TransmitResult transmit(const TxQueue& queue, const Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept;
  void close() noexcept;

  [[nodiscard]] const UdpSocket& socket() const noexcept { return socket_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::shared_ptr<const LinkLayer>& link_layer() const noexcept {
    return link_layer_;
  }
  [[nodiscard]] const std::array<std::uint8_t, 6>& mac() const noexcept { return mac_; }

  /// The client's connection, or the server's own.
  [[nodiscard]] std::uintptr_t connection() const noexcept { return connection_; }
  [[nodiscard]] bool has_connection(std::uintptr_t connection) const noexcept;
  /// Server: connection of a peer that need not have sent anything. Throws Error
  /// NO_SPACE_AVAILABLE.
  std::uintptr_t add_peer(const SocketAddress& address);
  /// Port and first queue.
  [[nodiscard]] std::pair<std::uint16_t, std::uint16_t> port_queue() const noexcept {
    return {port_id_, queue_id_};
  }

 private:
  std::string name_;
  std::uint16_t port_id_;
  std::uint16_t queue_id_;
  UdpSocket socket_;
  PeerChannels peers_;
  std::uintptr_t connection_;
  std::unique_ptr<UdpReceiver> receiver_;
  struct QueueSender {
    std::uint16_t queue;
    std::unique_ptr<UdpSender> sender;
  };
  std::vector<QueueSender> senders_;
  std::shared_ptr<const LinkLayer> link_layer_;
  std::array<std::uint8_t, 6> mac_;
};

}  // namespace daqiri::sockets
