/// Distributes the frames of an interface among several packet sockets (packet(7), PACKET_FANOUT).
#pragma once

#include <linux/filter.h>

#include <span>

#include "engines/packet/interface.h"

namespace daqiri::packet {

/// Put the sockets, which are bound to the interface, into a group with this program (see
/// steering::distribution). Throws Error.
void join_fanout(const NetworkInterface& interface, std::span<const int> sockets,
                 std::span<const sock_filter> program);

}  // namespace daqiri::packet
