#include "engines/packet/interface_link.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <new>

namespace daqiri::packet {

namespace {

/// Size of `ethtool_link_settings` with the largest possible bit masks.
constexpr std::size_t SETTINGS_BYTES =
    sizeof(ethtool_link_settings) + std::size_t{3} * 127 * sizeof(std::uint32_t);

std::uint32_t speed_of(int fd, ifreq& request) noexcept {
  alignas(ethtool_link_settings) std::array<std::byte, SETTINGS_BYTES> memory{};
  auto& link = *new (memory.data()) ethtool_link_settings{};
  request.ifr_data = reinterpret_cast<char*>(&link);
  const auto ask = [&] {
    link.cmd = ETHTOOL_GLINKSETTINGS;
    return ioctl(fd, SIOCETHTOOL, &request) == 0;
  };
  // The first call returns the number of words of the bit masks, the second fills them in.
  if (!ask() || link.link_mode_masks_nwords >= 0) return 0;
  link.link_mode_masks_nwords = static_cast<std::int8_t>(-link.link_mode_masks_nwords);
  if (!ask()) return 0;
  constexpr auto UNKNOWN = static_cast<std::uint32_t>(SPEED_UNKNOWN);
  return link.speed == UNKNOWN ? 0 : link.speed;
}

}  // namespace

InterfaceLink::InterfaceLink(const NetworkInterface& interface)
    : interface_(interface),
      socket_(
          File::private_to_process([] { return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); })) {
  if (!socket_.is_open()) throw packet_error(interface, "read the state of the link", errno);
}

LinkState InterfaceLink::state() const noexcept {
  ifreq request{};
  request.ifr_ifindex = interface_.index;
  // Look up the current name, which may have changed.
  if (ioctl(socket_.fd(), SIOCGIFNAME, &request) != 0 ||
      ioctl(socket_.fd(), SIOCGIFFLAGS, &request) != 0)
    return {.state = "removed"};
  constexpr int UP = IFF_UP | IFF_RUNNING;
  LinkState link{.state = (request.ifr_flags & UP) == UP ? "up" : "down"};
  if (ioctl(socket_.fd(), SIOCGIFMTU, &request) == 0)
    link.mtu = static_cast<std::uint32_t>(request.ifr_mtu);
  link.speed = speed_of(socket_.fd(), request);
  return link;
}

}  // namespace daqiri::packet
