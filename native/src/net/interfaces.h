/// The network interfaces of this host: which one an address belongs to, multicast groups.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "net/socket_address.h"

namespace daqiri {

/// Index of the network interface through which `group` is to be reached: the scope of an IPv6
/// group (ff02::1%eth0), else the one that `address` names (eth0) or that has it (192.0.2.1).
/// 0, which leaves the choice to the kernel's routes, for an empty address, a wildcard and a group.
/// Throws Error INVALID_PARAMETER for one that this host does not have.
unsigned multicast_interface(const SocketAddress& group, const std::string& address);

/// Receive what is sent to `group`. Returns 0 or an errno.
int join_group(int fd, const SocketAddress& group, unsigned index) noexcept;

/// Send to groups through the interface `index`, instead of the route's. Returns 0 or an errno.
int send_to_groups_through(int fd, int family, unsigned index) noexcept;

/// The address from which this host sends to `peer` (its route's source); `peer`'s own address when
/// that is a loopback one and the route is not known.
SocketAddress source_towards(const SocketAddress& peer) noexcept;

/// MAC address of the network interface that has `address`; zeros for loopback, wildcards and
/// tunnels.
std::array<std::uint8_t, 6> mac_of(const SocketAddress& address) noexcept;

}  // namespace daqiri
