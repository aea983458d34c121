#include "system/privileges.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "system/file.h"

namespace daqiri {

std::string how_to_grant(std::string_view capability) {
  std::string lower(capability);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return "AmbientCapabilities=" + std::string(capability) + " of systemd, or `setcap " + lower +
         "+ep` of the program (of python3 itself for scripts)";
}

bool may_change_network() noexcept {
  const File socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::string_view("lo").copy(request.ifr_name, IFNAMSIZ - 1);
  // What they are: nothing changes.
  if (ioctl(socket.fd(), SIOCGIFFLAGS, &request) != 0) return true;
  return ioctl(socket.fd(), SIOCSIFFLAGS, &request) == 0 || errno != EPERM;
}

bool may_open_packet_sockets() noexcept {
  // Of no protocol: it gets no packets.
  const File socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  return socket.is_open() || errno != EPERM;
}

}  // namespace daqiri
