#include "net/socket_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netdb.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "daqiri/error.h"
#include "system/file.h"

namespace daqiri {

namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(Status::INVALID_PARAMETER, what); }

/// Index of the network interface, given by name or number; 0: none.
unsigned scope_of(const std::string& text) noexcept {
  if (const unsigned index = if_nametoindex(text.c_str()); index != 0) return index;
  unsigned number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc() && end == text.data() + text.size() ? number : 0;
}

}  // namespace

// The first word of a key is the first 8 bytes of the kernel's structure, which for IPv4 contain
// everything: family, port, address. For IPv6 they contain the flow label, which does not identify
// a peer; a key has the scope there instead, followed by the address.

SocketAddress::SocketAddress(const AddressKey& key) noexcept : v6_{} {
  std::memcpy(&v4_, key.data(), sizeof(key[0]));
  if (!ipv6()) return;
  v6_.sin6_scope_id = std::exchange(v6_.sin6_flowinfo, 0U);
  std::memcpy(&v6_.sin6_addr, &key[1], sizeof(v6_.sin6_addr));
}

AddressKey SocketAddress::key() const noexcept {
  SocketAddress first = *this;
  if (ipv6()) first.v6_.sin6_flowinfo = v6_.sin6_scope_id;
  AddressKey key{};
  std::memcpy(key.data(), &first.v4_, sizeof(key[0]));
  if (ipv6()) std::memcpy(&key[1], &v6_.sin6_addr, sizeof(v6_.sin6_addr));
  return key;
}

SocketAddress SocketAddress::parse(const std::string& host, std::uint16_t port) {
  // The library accepts interface names only after link-local addresses.
  const std::size_t percent = host.find('%');
  const std::string numeric = host.substr(0, percent);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(numeric.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, &freeaddrinfo);
  if (rc != 0 || found->ai_addrlen > CAPACITY) {
    refuse("'" + host + "' is not a numeric IPv4 or IPv6 address (" + gai_strerror(rc) +
           "); names are not resolved");
  }
  SocketAddress address;
  std::memcpy(address.data(), found->ai_addr, found->ai_addrlen);
  address.set_port(port);
  if (percent == std::string::npos) return address;
  if (!address.ipv6())
    refuse("'" + host + "': only IPv6 addresses have a scope (%eth0); leave it out");
  const std::string scope = host.substr(percent + 1);
  address.v6_.sin6_scope_id = scope_of(scope);
  if (address.v6_.sin6_scope_id == 0) {
    refuse("'" + host + "': this host has no network interface '" + scope +
           "'; `ip -brief link` lists those it has");
  }
  return address;
}

SocketAddress SocketAddress::local_of(int fd) noexcept {
  SocketAddress address;
  socklen_t length = CAPACITY;
  if (getsockname(fd, address.data(), &length) != 0) return {};
  return address;
}

bool SocketAddress::wildcard() const noexcept {
  return ipv6() ? IN6_IS_ADDR_UNSPECIFIED(&v6_.sin6_addr) : v4_.sin_addr.s_addr == INADDR_ANY;
}

bool SocketAddress::loopback() const noexcept {
  return ipv6() ? IN6_IS_ADDR_LOOPBACK(&v6_.sin6_addr) : ipv4() >> 24U == 127;
}

bool SocketAddress::multicast() const noexcept {
  if (ipv6()) return IN6_IS_ADDR_MULTICAST(&v6_.sin6_addr);
  return family() == AF_INET && IN_MULTICAST(ipv4());
}

bool SocketAddress::same_host(const SocketAddress& other) const noexcept {
  SocketAddress mine = *this;
  mine.set_port(other.port());
  return mine.key() == other.key();
}

std::string SocketAddress::text() const {
  char host[NI_MAXHOST]{};
  if (!given() ||
      getnameinfo(data(), length(), host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0)
    return "(none)";
  std::string name = host;
  if (ipv6()) name.insert(0, 1, '[').push_back(']');
  return name.append(1, ':').append(std::to_string(port()));
}

// --- Network interfaces

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
  // Every address in 127.0.0.0/8 belongs to the loopback interface.
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
    refuse("address '" + address + "', which chooses where the group " + group.text() +
           " is joined, is neither a network interface of this host nor an IP address; "
           "`ip -brief address` lists both");
  }
  if (local.wildcard() || local.multicast()) return 0;
  const unsigned index = owner_of(local);
  if (index == 0) {
    refuse("no network interface of this host has the address " + address +
           ", which chooses where the group " + group.text() +
           " is joined; `ip -brief address` lists those it has");
  }
  return index;
}

int join_group(int fd, const SocketAddress& group, unsigned index) noexcept {
  // By default, a socket also receives groups that other sockets of this host have joined, on any
  // interface.
  constexpr int NO = 0;
  if (!group.ipv6()) {
    ip_mreqn request{};
    request.imr_multiaddr.s_addr = htonl(group.ipv4());
    request.imr_ifindex = static_cast<int>(index);
    const int error = set(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof(request));
    return error != 0 ? error : set(fd, IPPROTO_IP, IP_MULTICAST_ALL, &NO, sizeof(NO));
  }
  ipv6_mreq request{};
  request.ipv6mr_multiaddr = group.ipv6_bytes();
  request.ipv6mr_interface = index;
  if (const int error = set(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof(request));
      error != 0)
    return error;
  if (const int error = set(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, &NO, sizeof(NO)); error != 0)
    return error;
  if (index == 0) return 0;
  // For IPv6, Linux (6.18) compares the group with those of the socket, but not the interface. This
  // requires CAP_NET_RAW before Linux 5.7; without it, the group is received as it was there.
  const int error = set(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, sizeof(index));
  return error == EPERM ? 0 : error;
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
