/// Ports for servers with a fixed port.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "net/socket_address.h"
#include "system/file.h"

namespace daqiri::test {

/// Ports of this process alone, among those of all tests, also in Python (free_ports.py): a block
/// is reserved by an abstract Unix socket. They are below the range of ephemeral ports
/// (ip_local_port_range), so that no other program gets one by chance.
class PortBlocks {
 public:
  /// Returns each port once.
  std::uint16_t next() {
    if (used_ == SIZE) reserve();
    return static_cast<std::uint16_t>(FIRST + block_ * SIZE + used_++);
  }

 private:
  static constexpr unsigned FIRST = 15'000;
  static constexpr unsigned SIZE = 256;
  static constexpr unsigned COUNT = (32'768 - FIRST) / SIZE;

  void reserve() {
    std::random_device random;
    for (unsigned first = random(), i = 0; i < COUNT; ++i) {
      block_ = (first + i) % COUNT;
      sockaddr_un name{};
      name.sun_family = AF_UNIX;
      const int length = std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1,
                                       "daqiri-test-ports-%u", block_);
      File lock(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      if (bind(lock.fd(), reinterpret_cast<const sockaddr*>(&name),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1) +
                   static_cast<socklen_t>(length)) != 0)
        continue;
      locks_.push_back(std::move(lock));
      used_ = 0;
      return;
    }
    throw std::runtime_error("other tests have reserved all ports");
  }

  unsigned block_{0};
  unsigned used_{SIZE};
  std::vector<File> locks_;
};

/// An unused port for a socket of `type` (SOCK_DGRAM, SOCK_STREAM); never the same port twice.
inline std::uint16_t free_port_for(int type, const std::string& host = "127.0.0.1") {
  static PortBlocks blocks;
  for (;;) {
    const SocketAddress address = SocketAddress::parse(host, blocks.next());
    const File probe(socket(address.family(), type | SOCK_CLOEXEC, 0));
    if (bind(probe.fd(), address.data(), address.length()) == 0) return address.port();
  }
}

}  // namespace daqiri::test
