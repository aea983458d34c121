/// Addresses of an interface's sockets, and what is said when they cannot be used.
#pragma once

#include <string>

#include "daqiri/config.h"
#include "net/socket_address.h"

namespace daqiri::sockets {

enum class Transport : std::uint8_t { UDP, TCP };

/// "udp" or "tcp".
[[nodiscard]] const char* name_of(Transport transport) noexcept;

struct SocketAddresses {
  /// Where a server is; where a client sends from (no address: the kernel chooses).
  SocketAddress local;
  /// No address for a server.
  SocketAddress remote;
};

/// Those of `socket_config`. Throws Error INVALID_PARAMETER naming the interface, the key and what
/// is accepted.
SocketAddresses addresses_of(const InterfaceConfig& interface, Transport transport);

/// What a socket call met, and what to do about it: "Connection refused: nothing listens there
/// ...".
std::string socket_error_text(int error, const SocketAddress& address, Transport transport);

/// setsockopt(2) of an int.
bool set_int_option(int fd, int level, int option, int value) noexcept;

}  // namespace daqiri::sockets
