/// Interface of the socket engine to UDP and TCP interfaces.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engines/socket/sockets.h"
#include "io/io_engine.h"
#include "net/headers.h"
#include "net/link_statistics.h"

namespace daqiri::sockets {

/// One interface with its sockets, made from its configuration and open until `close`.
///
/// Threads as for PortIo; functions for connections may be called by any thread, also after
/// `close`.
class Endpoint : public PortIo, public StreamPort {
 public:
  /// Throws Error like addresses_of. The port must outlive it.
  Endpoint(const Port& port, Transport transport)
      : port_(port),
        transport_(transport),
        addresses_(addresses_of(port.config)),
        connection_(next_connection_id()) {}

  [[nodiscard]] StreamPort* stream() noexcept override { return this; }
  [[nodiscard]] const std::string& name() const noexcept { return port_.config.name_; }
  [[nodiscard]] std::uint16_t port_id() const noexcept { return port_.id; }
  [[nodiscard]] Transport transport() const noexcept { return transport_; }
  [[nodiscard]] bool client() const noexcept { return addresses_.remote.given(); }
  /// The bound address; a wildcard has the port only.
  [[nodiscard]] const SocketAddress& local() const noexcept { return addresses_.local; }
  /// The configured peer; no address for a server.
  [[nodiscard]] const SocketAddress& remote() const noexcept { return addresses_.remote; }
  /// The connection of the client, or of the server itself.
  [[nodiscard]] std::uintptr_t connection() const noexcept { return connection_; }
  /// Bytes on the wire of a packet in addition to its own (without preamble, gap and checksum): the
  /// headers of Ethernet, IP and the transport.
  [[nodiscard]] std::uint32_t packet_overhead() const noexcept {
    return ETHERNET_SIZE + ip_size((client() ? remote() : local()).ipv6()) +
           (transport_ == Transport::UDP ? UDP_SIZE : TCP_SIZE);
  }
  /// "'tx0' (client of udp://192.0.2.1:5000)", for messages.
  [[nodiscard]] std::string text() const {
    return "'" + name() + "' (" + (client() ? "client of " : "server at ") +
           uri(transport_, client() ? remote() : local()) + ")";
  }

  [[nodiscard]] std::shared_ptr<const LinkLayer> link_layer() const override { return link_layer_; }
  [[nodiscard]] std::array<std::uint8_t, 6> mac_address() const noexcept override {
    return mac_of(local().given() ? local() : source_towards(remote()));
  }

  [[nodiscard]] PortSnapshot losses(std::uint64_t max_age) const noexcept override {
    return losses_ ? losses_->losses(max_age) : PortSnapshot{};
  }
  [[nodiscard]] int loss_interface() const noexcept override {
    return losses_ ? losses_->interface() : -1;
  }
  /// The sockets exist: count what the host loses before them. The calling thread is in their
  /// network namespace.
  void count_losses();
  void end_losses() noexcept {
    if (losses_) losses_->stop();
  }

  /// All endpoints of the session exist: begin to accept and to connect.
  virtual void start() {}
  /// Nothing more is sent: shut down sending to the peers.
  virtual void end_sending() noexcept {}
  /// Called after `end_sending`; see IoEngine::finish_sending. `deadline`: CLOCK_MONOTONIC ns.
  virtual void finish_sending(std::uint64_t /*deadline*/) noexcept {}
  virtual void close() noexcept = 0;

  [[nodiscard]] virtual bool has_connection(std::uintptr_t connection) const noexcept = 0;
  /// See Connections::first_client.
  [[nodiscard]] virtual std::uintptr_t first_client() const { return connection_; }
  /// The queue of a connection; the first queue until it has one.
  [[nodiscard]] virtual std::uint16_t queue_of(std::uintptr_t connection) const = 0;
  /// Whether `connect` to a peer other than the configured one is possible.
  [[nodiscard]] virtual bool can_connect(const SocketAddress& peer,
                                         const SocketAddress& source) const noexcept = 0;
  /// Connect to a peer, from `source` (no address: any). Throws Error.
  virtual std::uintptr_t connect(const SocketAddress& peer, const SocketAddress& source) = 0;
  /// Call `use` with each socket of the connection (-1: closed). The sockets stay open during the
  /// call.
  virtual void for_sockets(std::uintptr_t connection, const std::function<void(int fd)>& use) = 0;
  /// The endpoint's own connection first.
  [[nodiscard]] virtual std::vector<ConnectionInfo> connections() const = 0;

 protected:
  /// Id of the first queue.
  [[nodiscard]] std::uint16_t first_queue() const noexcept {
    if (!port_.rx.empty()) return port_.rx.front()->id();
    return port_.tx.empty() ? std::uint16_t{0} : port_.tx.front()->id();
  }
  /// The list entry for a server's own connection.
  [[nodiscard]] ConnectionInfo listening(bool open) const {
    return {connection_, "", local().text(),
            open ? ConnectionState::LISTENING : ConnectionState::CLOSED, ""};
  }

  const Port& port_;
  Transport transport_;
  SocketAddresses addresses_;
  std::uintptr_t connection_;
  std::shared_ptr<const LinkLayer> link_layer_;
  mutable std::optional<LinkStatistics> losses_;
};

/// Opens the sockets. Throws Error.
std::unique_ptr<Endpoint> make_udp_endpoint(const Port& port);

}  // namespace daqiri::sockets
