/// Packet sockets (packet(7)) of one network interface.
#pragma once

#include <linux/if_packet.h>

#include <cstdint>

#include "system/file.h"

namespace daqiri {

/// A packet socket that is not bound yet. Not open: errno has the reason.
[[nodiscard]] File new_packet_socket();
/// `protocol`: an EtherType, ETH_P_ALL, or 0 to receive nothing. Returns 0 or errno.
[[nodiscard]] int bind_to_interface(const File& socket, int interface,
                                    std::uint16_t protocol) noexcept;
/// Whether it still has the interface of `bind_to_interface`. An interface that is removed, or
/// moved to another network namespace, leaves its sockets for good, also if it comes back.
[[nodiscard]] bool has_interface(const File& socket) noexcept;

/// Frames that the socket `fd`, without a ring of version 3, has seen since the last call, and
/// those of them that found no space; zeros if the kernel does not tell.
[[nodiscard]] tpacket_stats packet_statistics(int fd) noexcept;

}  // namespace daqiri
