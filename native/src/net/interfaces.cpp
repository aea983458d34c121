#include "net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "daqiri/error.h"
#include "system/file.h"

namespace daqiri {

namespace {

/// Index of the interface that has the address; 0: none.
unsigned owner_of(const SocketAddress& address) noexcept {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return 0;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(all, &freeifaddrs);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != address.family()) continue;
    SocketAddress found;
    std::memcpy(found.data(), each->ifa_addr, address.length());
    if (found.same_host(address)) return if_nametoindex(each->ifa_name);
  }
  // Every address of 127.0.0.0/8 is the loopback interface's.
  return address.loopback() ? if_nametoindex("lo") : 0;
}

int set(int fd, int level, int option, const void* value, socklen_t length) noexcept {
  return setsockopt(fd, level, option, value, length) == 0 ? 0 : errno;
}

}  // namespace

unsigned multicast_interface(const SocketAddress& group, const std::string& address) {
  if (group.scope() != 0) return group.scope();
  if (address.empty()) return 0;
  if (const unsigned index = if_nametoindex(address.c_str()); index != 0) return index;
  SocketAddress local;
  try {
    local = SocketAddress::parse(address, 0);
  } catch (const Error&) {
    throw Error(Status::INVALID_PARAMETER,
                "address '" + address + "', which chooses where the group " + group.text() +
                    " is joined, names no network interface of this host and is no IP address; "
                    "`ip -brief address` lists both");
  }
  if (local.wildcard() || local.multicast()) return 0;
  const unsigned index = owner_of(local);
  if (index == 0) {
    throw Error(Status::INVALID_PARAMETER,
                "no network interface of this host has the address " + address +
                    ", which chooses where the group " + group.text() +
                    " is joined; `ip -brief address` lists those it has");
  }
  return index;
}

int join_group(int fd, const SocketAddress& group, unsigned index) noexcept {
  if (group.ipv6()) {
    ipv6_mreq request{};
    request.ipv6mr_multiaddr = group.ipv6_bytes();
    request.ipv6mr_interface = index;
    return set(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof(request));
  }
  ip_mreqn request{};
  request.imr_multiaddr.s_addr = htonl(group.ipv4());
  request.imr_ifindex = static_cast<int>(index);
  return set(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof(request));
}

int send_to_groups_through(int fd, int family, unsigned index) noexcept {
  if (index == 0) return 0;
  if (family == AF_INET6) {
    const int number = static_cast<int>(index);
    return set(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &number, sizeof(number));
  }
  ip_mreqn request{};
  request.imr_ifindex = static_cast<int>(index);
  return set(fd, IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof(request));
}

SocketAddress source_towards(const SocketAddress& peer) noexcept {
  const File probe(socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP));
  if (probe.is_open() && connect(probe.fd(), peer.data(), peer.length()) == 0)
    return SocketAddress::local_of(probe.fd());
  return peer.loopback() ? peer : SocketAddress();
}

std::array<std::uint8_t, 6> mac_of(const SocketAddress& address) noexcept {
  std::array<std::uint8_t, 6> mac{};
  ifreq request{};
  const unsigned index = owner_of(address);
  if (index == 0 || if_indextoname(index, request.ifr_name) == nullptr) return mac;
  const File any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (ioctl(any.fd(), SIOCGIFHWADDR, &request) == 0 && request.ifr_hwaddr.sa_family == ARPHRD_ETHER)
    std::memcpy(mac.data(), request.ifr_hwaddr.sa_data, mac.size());
  return mac;
}

}  // namespace daqiri
