/// UDP and TCP sockets: addresses, options and error messages.
#pragma once

#include <array>
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
  /// Where a server is; where a client sends from (no address: the kernel chooses).
  SocketAddress local;
  /// No address for a server.
  SocketAddress remote;
};

/// Those of `socket_config`; validation has seen to it that those needed are there and of one
/// family. Throws Error INVALID_PARAMETER naming the interface and the key for a scope that this
/// host has not.
SocketAddresses addresses_of(const InterfaceConfig& interface);

/// A connection id that no other connection of this process has had.
std::uintptr_t next_connection_id() noexcept;

/// What flows say of packets from a peer, `length` bytes as IPv4 has them (0: a stream). They name
/// ports as those of UDP; for a stream they are its TCP ports.
steering::PacketKey key_of(const SocketAddress& peer, const SocketAddress& local,
                           std::uint16_t length) noexcept;

/// "interface 'rx0': <what>".
Error interface_error(const std::string& interface, Status status, const std::string& what);
/// CONNECT_FAILURE: "interface 'rx0': cannot <action> tcp://192.0.2.1:5000: <socket_error_text>".
Error socket_error(const std::string& interface, const char* action, Transport transport,
                   const SocketAddress& address, int error);
/// What a socket call met, and what to do about it: "Connection refused: nothing listens there
/// ...".
std::string socket_error_text(int error, const SocketAddress& address, Transport transport);
/// "interface 'rx0': <text>".
void log_about(const std::string& interface, LogLevel level, const std::string& text);

/// Non-blocking and close-on-exec; one for IPv6 never sees IPv4 peers under mapped addresses. Not
/// open: errno says why.
File make_socket(const SocketAddress& address, Transport transport) noexcept;

bool set_int_option(int fd, int level, int option, int value) noexcept;
/// Ask for `bytes` of SO_RCVBUF or SO_SNDBUF (`buffer`) as setsockopt(2) counts them, never less
/// than there are. Returns what the kernel grants.
int enlarge_buffer(int fd, int buffer, int bytes) noexcept;

/// Of packets [first, first + count), those up to the first that is not longer than `limit` bytes
/// fail.
TransmitResult too_long(const Burst& burst, std::uint32_t first, std::uint32_t count,
                        std::uint32_t limit) noexcept;

/// Buffers of every region of the queue for up to `n` packets, to `numbers[region]` from `at` on.
/// Returns for how many.
template <typename Numbers>
std::uint32_t take_buffers(const RxQueue& queue, Numbers* numbers, std::uint32_t at,
                           std::uint32_t n) noexcept {
  std::array<std::uint32_t, MAX_NUM_SEGS> counts{};
  for (int s = 0; s < queue.num_segments(); ++s) {
    counts[s] = queue.region(s).take(&numbers[s][at], n);
    n = counts[s];
  }
  // A packet needs a buffer of every region.
  for (int s = 0; s < queue.num_segments(); ++s) {
    if (counts[s] > n) queue.region(s).give(&numbers[s][at + n], counts[s] - n);
  }
  return n;
}

}  // namespace daqiri::sockets
