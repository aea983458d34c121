/// Limits the packets of an interface's sockets, in the filter language of tcpdump
/// (pcap-filter(7)).
#pragma once

#include <linux/filter.h>

#include <span>
#include <string>

#include "engines/packet/interface.h"

namespace daqiri::packet {

/// Let only frames through to `socket` that match the expression. libpcap compiles it. `before`:
/// instructions that come first. Throws Error INVALID_PARAMETER for an invalid expression,
/// NOT_SUPPORTED without libpcap.
void attach_filter(const File& socket, const NetworkInterface& interface,
                   const std::string& expression, std::span<const sock_filter> before = {});

}  // namespace daqiri::packet
