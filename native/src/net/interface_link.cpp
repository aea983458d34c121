#include "net/interface_link.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <new>
#include <utility>

#include "net/packet_socket.h"

namespace daqiri {

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

/// `request` has the current name afterwards.
LinkFlags flags_of(int fd, int index, ifreq& request) noexcept {
  request.ifr_ifindex = index;
  // The name may have changed.
  if (ioctl(fd, SIOCGIFNAME, &request) != 0 || ioctl(fd, SIOCGIFFLAGS, &request) != 0) return {};
  LinkFlags found{.flags = static_cast<unsigned short>(request.ifr_flags)};
  if (ioctl(fd, SIOCGIFMTU, &request) == 0) found.mtu = static_cast<std::uint32_t>(request.ifr_mtu);
  return found;
}

}  // namespace

InterfaceLink::InterfaceLink(int index, const std::string& name, bool for_packet_sockets)
    : index_(index),
      socket_(
          File::private_to_process([] { return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); })) {
  if (!socket_.is_open()) throw file_error("cannot read the state of the link", name, errno);
  if (!for_packet_sockets) return;
  // Whoever receives by one says what is missing.
  File made = new_packet_socket();
  if (made.is_open() && bind_to_interface(made, index, 0) == 0) packet_socket_ = std::move(made);
}

bool InterfaceLink::is_lost() const noexcept {
  return packet_socket_.is_open() && !has_interface(packet_socket_);
}

LinkState InterfaceLink::state() const noexcept {
  ifreq request{};
  const LinkFlags found = flags_of(socket_.fd(), index_, request);
  if (is_lost() || found.flags < 0) return {.state = "removed"};
  constexpr int UP = IFF_UP | IFF_RUNNING;
  return {.state = (found.flags & UP) == UP ? "up" : "down",
          .speed = speed_of(socket_.fd(), request),
          .mtu = found.mtu};
}

LinkFlags InterfaceLink::flags() const noexcept {
  ifreq request{};
  return is_lost() ? LinkFlags{} : flags_of(socket_.fd(), index_, request);
}

}  // namespace daqiri
