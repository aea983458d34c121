#include "engines/packet/interface.h"

#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

#include "net/interfaces.h"
#include "net/packet_socket.h"
#include "system/privileges.h"

namespace daqiri::packet {

namespace {

std::string fix_for(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return "raw Ethernet needs CAP_NET_RAW: " + how_to_grant("CAP_NET_RAW");
    case ENOMEM:
      return "the kernel has no memory for the ring; lower num_bufs or buf_size of the queue's "
             "memory regions";
    case ENODEV:
    case ENXIO:
      return "the interface has been removed";
    case EMFILE:
    case ENFILE:
      return "the process has no file descriptor left (`ulimit -n` raises the limit)";
    case EAFNOSUPPORT:
      return "this kernel has no packet sockets (CONFIG_PACKET)";
    default:
      return "see packet(7)";
  }
}

/// Sets PACKET_ADD_MEMBERSHIP or PACKET_DROP_MEMBERSHIP. Returns errno, 0: done.
int set_promiscuous(const File& socket, const NetworkInterface& interface, int option) noexcept {
  packet_mreq all{};
  all.mr_ifindex = interface.index;
  all.mr_type = PACKET_MR_PROMISC;
  return setsockopt(socket.fd(), SOL_PACKET, option, &all, sizeof all) == 0 ? 0 : errno;
}

}  // namespace

NetworkInterface NetworkInterface::of(const InterfaceConfig& config) {
  const auto refuse = [&](const std::string& text) {
    throw Error(Status::INVALID_PARAMETER, "interface '" + config.name_ + "': " + text);
  };
  NetworkInterface found;
  found.name = config.address_;
  const File question(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!question.is_open()) throw packet_error({.name = config.address_}, "open a socket", errno);
  ifreq request{};
  config.address_.copy(request.ifr_name, IFNAMSIZ - 1);
  const auto ask = [&](unsigned long what) {
    if (ioctl(question.fd(), what, &request) == 0) return;
    if (errno == ENODEV) {
      refuse("address: found '" + config.address_ + "', and this host has the interfaces " +
             interfaces_of_this_host() + "; name one of them (`ip -brief link` shows their state)");
    }
    refuse("cannot query '" + config.address_ + "': " + std::generic_category().message(errno));
  };
  ask(SIOCGIFINDEX);
  found.index = request.ifr_ifindex;
  ask(SIOCGIFMTU);
  found.mtu = static_cast<std::uint32_t>(request.ifr_mtu);
  ask(SIOCGIFFLAGS);
  found.up = (request.ifr_flags & IFF_UP) != 0;
  ask(SIOCGIFHWADDR);
  ethtool_value flags{.cmd = ETHTOOL_GFLAGS, .data = 0};
  ifreq offloads = request;
  offloads.ifr_data = reinterpret_cast<char*>(&flags);
  found.takes_tags_out =
      ioctl(question.fd(), SIOCETHTOOL, &offloads) == 0 && (flags.data & ETH_FLAG_RXVLAN) != 0;
  const std::uint16_t type = request.ifr_hwaddr.sa_family;
  if (std::ranges::find(LINK_TYPES, type) == std::ranges::end(LINK_TYPES)) {
    refuse("address: '" + config.address_ + "' has no Ethernet frames (link type " +
           std::to_string(type) + "); name an Ethernet interface, or use a socket stream");
  }
  std::copy_n(request.ifr_hwaddr.sa_data, found.mac.size(), found.mac.begin());
  return found;
}

Error packet_error(const NetworkInterface& interface, const std::string& what, int error) {
  const bool denied = error == EPERM || error == EACCES;
  return {denied ? Status::NOT_SUPPORTED : Status::GENERIC_FAILURE,
          "cannot " + what + " on '" + interface.name +
              "': " + std::generic_category().message(error) + "; " + fix_for(error)};
}

File open_packet_socket(const NetworkInterface& interface) {
  File made = new_packet_socket();
  if (!made.is_open()) throw packet_error(interface, "open a packet socket", errno);
  return made;
}

void bind_packet_socket(const File& socket, const NetworkInterface& interface,
                        std::uint16_t protocol) {
  if (const int error = bind_to_interface(socket, interface.index, protocol); error != 0)
    throw packet_error(interface, "bind a packet socket", error);
}

void make_promiscuous(const File& socket, const NetworkInterface& interface) {
  if (const int error = set_promiscuous(socket, interface, PACKET_ADD_MEMBERSHIP); error != 0)
    throw packet_error(interface, "receive frames for all addresses", error);
}

void end_promiscuous(const File& socket, const NetworkInterface& interface) noexcept {
  set_promiscuous(socket, interface, PACKET_DROP_MEMBERSHIP);
}

}  // namespace daqiri::packet
