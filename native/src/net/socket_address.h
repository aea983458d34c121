/// IPv4 and IPv6 socket addresses, and the network interfaces of this host with these addresses.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

namespace daqiri {

/// An address in three words, for hashing, comparison and exchange between threads. All zeros:
/// none.
using AddressKey = std::array<std::uint64_t, 3>;

inline std::uint64_t hash(const AddressKey& key) noexcept {
  std::uint64_t h =
      key[0] * 0x9E3779B97F4A7C15U ^ key[1] * 0xC2B2AE3D27D4EB4FU ^ key[2] * 0x165667B19E3779F9U;
  h ^= h >> 32U;
  return h * 0x9E3779B97F4A7C15U >> 20U;
}

/// Address and port of either family, in the kernel's structure.
class SocketAddress {
 public:
  /// No address (family AF_UNSPEC).
  SocketAddress() noexcept : v6_{} {}
  explicit SocketAddress(const AddressKey& key) noexcept;
  /// From a numeric address ("192.0.2.1", "fe80::1%eth0"). Throws Error INVALID_PARAMETER.
  static SocketAddress parse(const std::string& host, std::uint16_t port);
  /// The result of getsockname(2).
  static SocketAddress local_of(int fd) noexcept;

  [[nodiscard]] sockaddr* data() noexcept { return &any_; }
  [[nodiscard]] const sockaddr* data() const noexcept { return &any_; }
  /// Length for the kernel: of this family, and of the largest one.
  [[nodiscard]] socklen_t length() const noexcept { return ipv6() ? sizeof(v6_) : sizeof(v4_); }
  static constexpr socklen_t CAPACITY = sizeof(sockaddr_in6);

  [[nodiscard]] int family() const noexcept { return any_.sa_family; }
  [[nodiscard]] bool given() const noexcept { return any_.sa_family != AF_UNSPEC; }
  [[nodiscard]] bool ipv6() const noexcept { return any_.sa_family == AF_INET6; }
  /// Host byte order.
  [[nodiscard]] std::uint16_t port() const noexcept {
    return ntohs(ipv6() ? v6_.sin6_port : v4_.sin_port);
  }
  void set_port(std::uint16_t port) noexcept {
    (ipv6() ? v6_.sin6_port : v4_.sin_port) = htons(port);
  }
  /// Host byte order; IPv4 only.
  [[nodiscard]] std::uint32_t ipv4() const noexcept { return ntohl(v4_.sin_addr.s_addr); }
  [[nodiscard]] const in6_addr& ipv6_bytes() const noexcept { return v6_.sin6_addr; }
  /// 0.0.0.0 or ::.
  [[nodiscard]] bool wildcard() const noexcept;
  [[nodiscard]] bool loopback() const noexcept;
  /// 224.0.0.0/4 or ff00::/8.
  [[nodiscard]] bool multicast() const noexcept;
  /// Index of the network interface of an IPv6 address; 0: none.
  [[nodiscard]] unsigned scope() const noexcept { return ipv6() ? v6_.sin6_scope_id : 0; }
  /// Whether both have the same host, regardless of the port.
  [[nodiscard]] bool same_host(const SocketAddress& other) const noexcept;

  [[nodiscard]] AddressKey key() const noexcept;
  /// "192.0.2.1:5000", "[fe80::1%eth0]:5000".
  [[nodiscard]] std::string text() const;

 private:
  union {
    sockaddr any_;
    sockaddr_in v4_;
    sockaddr_in6 v6_;
  };
};

// --- Network interfaces

/// Index of the network interface for `group`: the scope of an IPv6 group (ff02::1%eth0), otherwise
/// the interface with the name `address` (eth0) or the IP address `address` (192.0.2.1). Returns 0,
/// which lets the kernel's routes choose, for an empty address, a wildcard and a group. Throws
/// Error INVALID_PARAMETER for an interface that this host does not have.
unsigned multicast_interface(const SocketAddress& group, const std::string& address);

/// Receive packets to `group` that arrive on the interface `index` (0: that of the route), and on
/// no other interface where a program of this host has joined it. Returns 0 or an errno.
int join_group(int fd, const SocketAddress& group, unsigned index) noexcept;

/// Send to groups through the interface `index` instead of that of the route. Returns 0 or an
/// errno.
int send_to_groups_through(int fd, int family, unsigned index) noexcept;

/// The source address of this host for packets to `peer` (from its route); if the route is unknown
/// and `peer` is a loopback address, `peer`'s own address.
SocketAddress source_towards(const SocketAddress& peer) noexcept;

/// MAC address of the network interface with `address`; zeros for loopback, wildcards and tunnels.
std::array<std::uint8_t, 6> mac_of(const SocketAddress& address) noexcept;

}  // namespace daqiri
