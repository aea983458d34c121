/// What the socket engine needs of an interface, whatever its transport.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/io_engine.h"
#include "net/socket_address.h"

namespace daqiri::sockets {

/// One interface with its sockets, made from its configuration and open until `close`.
///
/// Threads are those of PortIo; what concerns connections may be called by any thread, also after
/// `close`.
class Endpoint : public PortIo {
 public:
  explicit Endpoint(const Port& port);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint16_t port_id() const noexcept { return port_id_; }

  /// All endpoints of the session are made: begin to accept and to connect.
  virtual void start() {}
  /// As IoEngine::finish_sending.
  virtual void finish_sending() noexcept {}
  virtual void close() noexcept = 0;

  /// Bytes on the wire of a packet beside its own (without preamble, gap and checksum): the headers
  /// of Ethernet, IP and the transport.
  [[nodiscard]] std::uint32_t packet_overhead() const noexcept;

  /// "udp://": what addresses begin with in messages.
  [[nodiscard]] virtual const char* scheme() const noexcept = 0;
  [[nodiscard]] virtual bool client() const noexcept = 0;
  /// The address it is bound to; a wildcard has the port only.
  [[nodiscard]] virtual SocketAddress local() const noexcept = 0;
  /// The configured peer; no address for a server.
  [[nodiscard]] virtual SocketAddress remote() const noexcept = 0;
  /// The client's connection, or the server's own.
  [[nodiscard]] virtual std::uintptr_t connection() const noexcept = 0;

  [[nodiscard]] virtual bool has_connection(std::uintptr_t connection) const noexcept = 0;
  /// Port and queue of a connection; the first queue until it has one.
  [[nodiscard]] virtual std::pair<std::uint16_t, std::uint16_t> port_queue(
      std::uintptr_t connection) const noexcept;
  /// Whether `connect` to a peer other than the configured one is possible.
  [[nodiscard]] virtual bool can_connect(const SocketAddress& peer,
                                         const SocketAddress& source) const noexcept = 0;
  /// Connection to a peer, from `source` (no address: any). Throws Error.
  virtual std::uintptr_t connect(const SocketAddress& peer, const SocketAddress& source) = 0;
  /// setsockopt(2). Throws Error.
  virtual void set_option(std::uintptr_t connection, int level, int option, const void* value,
                          std::size_t length) = 0;
  /// The endpoint's own connection first.
  [[nodiscard]] virtual std::vector<ConnectionInfo> connections() const = 0;

  /// "'tx0' (client of udp://192.0.2.1:5000)", for messages.
  [[nodiscard]] std::string text() const;

 protected:
  /// Bytes of the transport's header.
  [[nodiscard]] virtual std::uint32_t transport_header() const noexcept = 0;
  /// setsockopt(2) on `fd` (-1: closed); what is refused becomes an Error naming the interface.
  void set_option_of(int fd, int level, int option, const void* value, std::size_t length) const;

 private:
  std::string name_;
  std::uint16_t port_id_;
  std::uint16_t queue_id_;
};

}  // namespace daqiri::sockets
