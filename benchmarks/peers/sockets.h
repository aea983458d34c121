/// IPv4 sockets of the benchmark programs.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "peers/program.h"

namespace bench {

inline sockaddr_in address_of(const char* host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
    std::fprintf(stderr, "%s is not an IPv4 address\n", host);
    std::exit(2);
  }
  return address;
}

inline void set_option(int fd, int level, int name, int value, const char* what) {
  check(setsockopt(fd, level, name, &value, sizeof value), what);
}

inline int get_option(int fd, int level, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  getsockopt(fd, level, name, &value, &size);
  return value;
}

/// A socket bound to `port` of 127.0.0.1; 0 for any.
inline int bound_socket(int type, std::uint16_t port) {
  const int fd = check(socket(AF_INET, type | SOCK_CLOEXEC, 0), "socket");
  const sockaddr_in address = address_of("127.0.0.1", port);
  check(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
  return fd;
}

inline std::uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  check(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), "getsockname");
  return ntohs(address.sin_port);
}

inline void connect_to(int fd, const char* host, std::uint16_t port) {
  const sockaddr_in address = address_of(host, port);
  check(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "connect");
}

/// Requests a receive buffer of `bytes`, beyond the limit of the system if permitted. Returns the
/// granted size.
inline int ask_receive_buffer(int fd, int bytes) {
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0)
    set_option(fd, SOL_SOCKET, SO_RCVBUF, bytes, "SO_RCVBUF");
  return get_option(fd, SOL_SOCKET, SO_RCVBUF) / 2;
}

}  // namespace bench
