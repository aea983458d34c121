/// Ports for servers with a fixed port.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

#include "net/socket_address.h"
#include "system/file.h"

namespace daqiri::test {

/// An unused port for a socket of `type` (SOCK_DGRAM, SOCK_STREAM); never the same port twice. It
/// is below the range of ephemeral ports (ip_local_port_range), so that no other program gets it by
/// chance.
inline std::uint16_t free_port_for(int type, const std::string& host = "127.0.0.1") {
  static std::mt19937 random{std::random_device{}()};
  static std::set<std::uint16_t> given;
  std::uniform_int_distribution<unsigned> any(15'000, 32'767);
  for (int attempt = 0; attempt < 10'000; ++attempt) {
    const SocketAddress address =
        SocketAddress::parse(host, static_cast<std::uint16_t>(any(random)));
    const File probe(socket(address.family(), type | SOCK_CLOEXEC, 0));
    if (bind(probe.fd(), address.data(), address.length()) == 0 &&
        given.insert(address.port()).second)
      return address.port();
  }
  throw std::runtime_error("no port of " + host + " is free");
}

}  // namespace daqiri::test
