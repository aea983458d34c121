/// Packets that an interface's sockets see, in the filter language of tcpdump (pcap-filter(7)).
#pragma once

#include <string>

#include "engines/packet/interface.h"

namespace daqiri::packet {

/// The kernel lets only frames through to `socket` that the expression matches. libpcap compiles
/// it. Throws Error INVALID_PARAMETER for an expression that is none, NOT_SUPPORTED without
/// libpcap.
void attach_filter(const File& socket, const NetworkInterface& interface,
                   const std::string& expression);

}  // namespace daqiri::packet
