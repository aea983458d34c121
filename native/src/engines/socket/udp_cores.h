/// One UDP port read by several cores.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "daqiri/config.h"
#include "engines/socket/udp_socket.h"

namespace daqiri::sockets {

/// Whether several sockets at one address receive: a server's queues have different cores.
bool spreads(const InterfaceConfig& interface) noexcept;

/// The number of the socket that the poller of each receive queue reads, in the order of the
/// queues. With flows, each core has a socket; without, each queue, so that all receive.
std::vector<std::size_t> sockets_of(const InterfaceConfig& interface);

/// Opens the sockets; `claim` then holds an address that several share. The kernel chooses the
/// socket of a datagram by the flows as far as it can tell them, or without flows by the peer:
/// those of a peer and a flow are all in one socket. A socket of another program that joins the
/// address gets none. Throws Error.
std::vector<std::unique_ptr<UdpSocket>> open_sockets(const InterfaceConfig& interface, File& claim);

}  // namespace daqiri::sockets
