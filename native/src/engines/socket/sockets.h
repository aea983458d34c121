/// UDP and TCP sockets: addresses, options and error messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "daqiri/config.h"
#include "daqiri/error.h"
#include "io/io_engine.h"
#include "net/socket_address.h"
#include "steering/steering.h"
#include "system/file.h"

namespace daqiri::sockets {

enum class Transport : std::uint8_t { UDP, TCP };

/// "udp://192.0.2.1:5000".
std::string uri(Transport transport, const SocketAddress& address);

struct SocketAddresses {
  /// Address of a server; source address of a client (no address: the kernel chooses).
  SocketAddress local;
  /// No address for a server.
  SocketAddress remote;
};

/// The addresses of `socket_config`; validation has checked that the required ones exist and have
/// the same family. Throws Error INVALID_PARAMETER with the interface and the key for a scope that
/// this host does not have.
SocketAddresses addresses_of(const InterfaceConfig& interface);

/// Returns a connection id that is unique in this process.
std::uintptr_t next_connection_id() noexcept;

/// The key that flows match for packets from a peer; `length`: IPv4 length in bytes (0: a stream).
/// Flows use the port fields of UDP; for a stream they match its TCP ports.
steering::PacketKey key_of(const SocketAddress& peer, const SocketAddress& local,
                           std::uint16_t length) noexcept;

/// "interface 'rx0': <what>".
Error interface_error(const std::string& interface, Status status, const std::string& what);
/// CONNECT_FAILURE: "interface 'rx0': cannot <action> tcp://192.0.2.1:5000: <socket_error_text>".
Error socket_error(const std::string& interface, const char* action, Transport transport,
                   const SocketAddress& address, int error);
/// Text of a socket error and its remedy: "Connection refused: nothing listens there ...".
std::string socket_error_text(int error, const SocketAddress& address, Transport transport);
/// "interface 'rx0': <text>".
void log_about(const std::string& interface, LogLevel level, const std::string& text);

/// Non-blocking and close-on-exec; an IPv6 socket does not accept IPv4 peers with mapped addresses.
/// If the result is not open, errno is set.
File make_socket(const SocketAddress& address, Transport transport) noexcept;

bool set_int_option(int fd, int level, int option, int value) noexcept;
/// Request `bytes` of SO_RCVBUF or SO_SNDBUF (`buffer`), as counted by setsockopt(2); never reduces
/// the buffer. Returns what the kernel grants.
int enlarge_buffer(int fd, int buffer, int bytes) noexcept;

/// Counts the first packets of [first, first + count) that are longer than `limit` bytes as failed.
TransmitResult too_long(const Burst& burst, std::uint32_t first, std::uint32_t count,
                        std::uint32_t limit) noexcept;

}  // namespace daqiri::sockets
