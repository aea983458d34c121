/// One interface on a UDP socket.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engines/socket/endpoint.h"
#include "engines/socket/udp_launch.h"
#include "engines/socket/udp_receiver.h"
#include "engines/socket/udp_sender.h"
#include "engines/socket/udp_socket.h"

namespace daqiri::sockets {

/// The socket with its receiver, one sender per transmit queue, and its connections.
///
/// A server whose receive queues have different cores, and no flows to choose among them, has a
/// socket and a receiver for each queue: the kernel spreads the peers, each of which stays where
/// it is.
class UdpEndpoint final : public Endpoint {
 public:
  /// Opens the sockets. Throws Error.
  explicit UdpEndpoint(const Port& port);

  std::uint32_t receive(RxQueue& queue) noexcept override;
  [[nodiscard]] ReceiveTraits receive_traits(const RxQueue& queue) const noexcept override;
  TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override {
    return senders_[position(port_.tx, queue)]->send(burst, first, count);
  }
  TransmitCompletion completed(TxQueue&, bool last) noexcept override {
    return launch_->completed(last);
  }
  [[nodiscard]] TransmitTraits transmit_traits(const TxQueue& queue) const noexcept override;
  [[nodiscard]] std::string launch_times(const TxQueue& queue) const override {
    return launch_ == nullptr ? Endpoint::launch_times(queue) : launch_->kept_by();
  }
  void close() noexcept override;

  [[nodiscard]] bool has_connection(std::uintptr_t connection) const noexcept override {
    return connection == connection_ || peers_->find(connection).has_value();
  }
  [[nodiscard]] std::uint16_t queue_of(std::uintptr_t connection) const override;
  /// A server's socket can send to anybody.
  [[nodiscard]] bool can_connect(const SocketAddress& peer,
                                 const SocketAddress& source) const noexcept override {
    return !client() && local().family() == peer.family() &&
           (!source.given() || source.same_host(local()));
  }
  /// A peer need not have sent anything.
  std::uintptr_t connect(const SocketAddress& peer, const SocketAddress& /*source*/) override {
    return peers_->enter(peer.key()).connection;
  }
  void for_sockets(std::uintptr_t connection, const std::function<void(int fd)>& use) override;
  [[nodiscard]] std::vector<ConnectionInfo> connections() const override;

 private:
  /// The first of them, which also sends.
  [[nodiscard]] const UdpSocket& socket() const noexcept { return *sockets_.front(); }

  /// A socket is not closed while an option is set on it.
  mutable std::mutex options_;
  /// Of several sockets at one address.
  File claim_;
  std::vector<std::unique_ptr<UdpSocket>> sockets_;
  /// With etf: each of its reports would keep the socket readable for poll(2) until the worker has
  /// taken it. Here it is one event.
  std::unique_ptr<SocketEvents> arrivals_;
  std::shared_ptr<UdpPeers> peers_;
  /// One that the first queue's poller serves for all queues, or one for each.
  std::vector<std::unique_ptr<UdpReceiver>> receivers_;
  /// Null: the worker keeps launch times.
  std::unique_ptr<UdpLaunch> launch_;
  /// As the port's queues.
  std::vector<std::unique_ptr<UdpSender>> senders_;
};

}  // namespace daqiri::sockets
