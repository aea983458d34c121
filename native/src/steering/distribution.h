/// Programs by which the kernel distributes packets among the sockets of several threads.
#pragma once

#include <linux/filter.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "daqiri/config.h"

namespace daqiri::steering {

/// Classic BPF that returns, for a packet, the number of the socket that should get it.
///
/// A packet goes to the socket of the queue of the first flow that matches it, among flows by
/// addresses and ports; one of a flow with several queues, by a hash of these, to that of any of
/// them. Other packets go to the first socket. The packet's queue is determined later, by the
/// classifier: the program only saves a hand-over to the right thread.
///
/// `sockets`: by queue id. The kernel tries the flows one by one for each packet, so only the first
/// MOST_FLOWS are told apart.
[[nodiscard]] std::vector<sock_filter> distribution(const RxConfig& config,
                                                    const std::map<int, std::uint32_t>& sockets);
inline constexpr std::size_t MOST_FLOWS = 64;
/// Limit of the kernel (BPF_MAXINSNS).
inline constexpr std::size_t MOST_CODE = 4096;

/// The same for datagrams of an address family, without flows: by the peer, whose datagrams all go
/// to one of the first `sockets` sockets.
[[nodiscard]] std::vector<sock_filter> distribution_by_peer(bool ipv6, std::uint32_t sockets);

}  // namespace daqiri::steering
