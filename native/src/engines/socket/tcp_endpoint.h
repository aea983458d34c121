/// One interface on TCP connections.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engines/socket/endpoint.h"
#include "engines/socket/tcp_connections.h"
#include "engines/socket/tcp_reader.h"
#include "engines/socket/tcp_sender.h"

namespace daqiri::sockets {

/// A server with its peers, or a client with its connections; a reader for each receive queue, a
/// sender for each transmit queue.
class TcpEndpoint final : public Endpoint {
 public:
  /// A server listens from now on. Throws Error.
  explicit TcpEndpoint(const Port& port);
  ~TcpEndpoint() override { close(); }

  /// Accept, or connect: a client waits for its server for 1 s, and goes on trying behind the
  /// scenes.
  void start() override;
  std::uint32_t receive(RxQueue& queue) noexcept override;
  [[nodiscard]] ReceiveTraits receive_traits(const RxQueue& queue) const noexcept override;
  TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override;
  [[nodiscard]] TransmitTraits transmit_traits(const TxQueue& queue) const noexcept override;
  [[nodiscard]] std::shared_ptr<const LinkLayer> link_layer() const override { return link_layer_; }
  [[nodiscard]] std::array<std::uint8_t, 6> mac_address() const noexcept override;
  void finish_sending() noexcept override { connections_.finish_sending(); }
  void close() noexcept override;

  [[nodiscard]] const char* scheme() const noexcept override { return "tcp://"; }
  [[nodiscard]] bool client() const noexcept override { return config_.client; }
  [[nodiscard]] SocketAddress local() const noexcept override { return config_.local; }
  [[nodiscard]] SocketAddress remote() const noexcept override { return config_.remote; }
  [[nodiscard]] std::uintptr_t connection() const noexcept override { return own_; }
  [[nodiscard]] bool has_connection(std::uintptr_t connection) const noexcept override;
  [[nodiscard]] std::pair<std::uint16_t, std::uint16_t> port_queue(
      std::uintptr_t connection) const noexcept override;
  [[nodiscard]] bool can_connect(const SocketAddress& peer,
                                 const SocketAddress& source) const noexcept override;
  /// Waits for at most 10 s. Throws Error CONNECT_FAILURE.
  std::uintptr_t connect(const SocketAddress& peer, const SocketAddress& source) override;
  void set_option(std::uintptr_t connection, int level, int option, const void* value,
                  std::size_t length) override;
  [[nodiscard]] std::vector<ConnectionInfo> connections() const override;

 protected:
  [[nodiscard]] std::uint32_t transport_header() const noexcept override { return 20; }

 private:
  [[nodiscard]] TcpReader& reader_of(const RxQueue& queue) const noexcept;
  [[nodiscard]] TcpSender& sender_of(const TxQueue& queue) const noexcept;

  TcpConfig config_;
  /// The client's first connection, or the server itself.
  std::uintptr_t own_;
  std::shared_ptr<TcpStreams> streams_{std::make_shared<TcpStreams>()};
  mutable TcpConnections connections_;
  std::vector<std::unique_ptr<TcpReader>> readers_;
  /// By transmit queue, as in the configuration.
  std::vector<std::uint16_t> sender_ids_;
  std::vector<std::unique_ptr<TcpSender>> senders_;
  std::shared_ptr<const LinkLayer> link_layer_;
};

}  // namespace daqiri::sockets
