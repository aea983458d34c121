/// Capabilities of the process (capabilities(7)), as the kernel applies them to its network.
#pragma once

#include <string>
#include <string_view>

namespace daqiri {

/// How a program gets a capability, for messages: "AmbientCapabilities=CAP_NET_RAW of systemd, or
/// ...".
[[nodiscard]] std::string how_to_grant(std::string_view capability);

/// Whether the kernel lets this thread change network interfaces (CAP_NET_ADMIN of its network
/// namespace), or open packet sockets (CAP_NET_RAW). It is asked, because root of another user
/// namespace has capabilities that it does not accept.
[[nodiscard]] bool may_change_network() noexcept;
[[nodiscard]] bool may_open_packet_sockets() noexcept;

}  // namespace daqiri
