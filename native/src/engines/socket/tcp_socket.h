/// TCP sockets, made as an interface's configuration asks.
#pragma once

#include <cstdint>
#include <string>

#include "daqiri/config.h"
#include "net/socket_address.h"
#include "system/file.h"

namespace daqiri::sockets {

/// What an interface's configuration says of its TCP connections.
struct TcpConfig {
  /// Throws Error INVALID_PARAMETER naming the interface, the key and what is accepted.
  explicit TcpConfig(const InterfaceConfig& interface);

  std::string interface;
  bool client;
  /// Where a server listens; where a client sends from (no address: the kernel chooses).
  SocketAddress local;
  /// No address for a server.
  SocketAddress remote;
  std::uint64_t retry_ns;
};

// Sockets are non-blocking and close-on-exec; IPv6 ones never see IPv4 peers under mapped
// addresses.

/// A listening socket at `config.local`. Throws Error CONNECT_FAILURE naming the interface, the
/// address, the errno text and the fix.
File listen_at(const TcpConfig& config);

/// A socket that is connecting to `peer` from `source` (no address: any); its errno, 0 or
/// EINPROGRESS when all is well, goes to `error`. Not open: there is no socket.
File begin_connect(const SocketAddress& peer, const SocketAddress& source, int& error) noexcept;

/// Connected sockets: no delay for small packets (TCP_NODELAY), and a silent peer is found out
/// within 25 s (keep-alive probes after 10 s, 3 of them, 5 s apart).
void prepare_connected(int fd) noexcept;

/// SO_ERROR, which is cleared.
int pending_error(int fd) noexcept;
/// Whether the peer has all that was sent, or can never have it.
bool all_acknowledged(int fd) noexcept;

}  // namespace daqiri::sockets
