/// Distributes the frames of an interface among several packet sockets (packet(7), PACKET_FANOUT).
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "daqiri/config.h"
#include "engines/packet/interface.h"

namespace daqiri::packet {

/// Classic BPF that returns, for a frame, the number of the socket that should get it.
///
/// A frame goes to the socket of the queue of the first flow that matches it, among flows by
/// addresses, ports and length; one of a flow with several queues, by its hash if it has one, to
/// that of any of them. Other frames go to the first socket. The frame's queue is determined later,
/// by the classifier: the program only saves a hand-over to the right thread.
///
/// `sockets`: by queue id. The kernel tries the flows one by one for each frame, so only the first
/// MOST_FLOWS are told apart.
[[nodiscard]] std::vector<sock_filter> distribution(const RxConfig& config,
                                                    const std::map<int, std::uint32_t>& sockets);
inline constexpr std::size_t MOST_FLOWS = 64;
/// Limit of the kernel (BPF_MAXINSNS).
inline constexpr std::size_t MOST_CODE = 4096;

/// Put the sockets, which are bound to the interface, into a group with this program. Throws Error.
void join_fanout(const NetworkInterface& interface, std::span<const int> sockets,
                 std::span<const sock_filter> program);

}  // namespace daqiri::packet
