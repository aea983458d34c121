#include "net/socket_address.h"

#include <net/if.h>
#include <netdb.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "daqiri/error.h"

namespace daqiri {

namespace {

/// Index of the network interface, given by name or number; 0: none.
unsigned scope_of(const std::string& text) noexcept {
  if (const unsigned index = if_nametoindex(text.c_str()); index != 0) return index;
  unsigned number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc() && end == text.data() + text.size() ? number : 0;
}

}  // namespace

// A key is the first 8 bytes of the kernel's form, which is all that IPv4 has: family, port,
// address. IPv6 has its flow label there, which does not name a peer, and in a key the scope; the
// address follows.

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
  // The library takes the names of network interfaces behind link-local addresses only.
  const std::size_t percent = host.find('%');
  const std::string numeric = host.substr(0, percent);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(numeric.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, &freeaddrinfo);
  if (rc != 0 || found->ai_addrlen > CAPACITY) {
    throw Error(Status::INVALID_PARAMETER, "'" + host +
                                               "' is not a numeric IPv4 or IPv6 address (" +
                                               gai_strerror(rc) + "); names are not resolved");
  }
  SocketAddress address;
  std::memcpy(address.data(), found->ai_addr, found->ai_addrlen);
  address.set_port(port);
  if (percent == std::string::npos) return address;
  if (!address.ipv6()) {
    throw Error(Status::INVALID_PARAMETER,
                "'" + host + "': only IPv6 addresses have a scope (%eth0); leave it out");
  }
  address.v6_.sin6_scope_id = scope_of(host.substr(percent + 1));
  if (address.v6_.sin6_scope_id == 0) {
    throw Error(Status::INVALID_PARAMETER, "'" + host + "': this host has no network interface '" +
                                               host.substr(percent + 1) +
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

}  // namespace daqiri
