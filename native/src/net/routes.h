/// Which network interface of this host carries packets (rtnetlink).
#pragma once

#include "net/socket_address.h"
#include "system/file.h"

namespace daqiri {

/// Index of the interface through which packets from `local` (no address: any) leave for `peer`;
/// `egress`: the index that a socket is set to, 0: none. `netlink`: see `open_netlink`. Throws
/// std::system_error.
unsigned route_interface(const File& netlink, const SocketAddress& local, const SocketAddress& peer,
                         unsigned egress = 0);

/// Index of the interface that has `address`; 0: none has it, as with most of 127.0.0.0/8. Throws
/// std::system_error.
unsigned address_interface(const File& netlink, const SocketAddress& address);

}  // namespace daqiri
