#include "net/packet_socket.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>

namespace daqiri {

File new_packet_socket() {
  return File::private_to_process(
      [] { return socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

int bind_to_interface(const File& socket, int interface, std::uint16_t protocol) noexcept {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(protocol);
  address.sll_ifindex = interface;
  const auto* const bound = reinterpret_cast<const sockaddr*>(&address);
  return bind(socket.fd(), bound, sizeof address) == 0 ? 0 : errno;
}

bool has_interface(const File& socket) noexcept {
  sockaddr_ll address{};
  socklen_t length = sizeof address;
  return getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
         address.sll_ifindex > 0;
}

tpacket_stats packet_statistics(int fd) noexcept {
  tpacket_stats counts{};
  socklen_t length = sizeof counts;
  if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &counts, &length) != 0) return {};
  return counts;
}

}  // namespace daqiri
