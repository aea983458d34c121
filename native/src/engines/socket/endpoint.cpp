#include "engines/socket/endpoint.h"

#include <system_error>

#include "engines/socket/udp_socket.h"
#include "net/routes.h"

namespace daqiri::sockets {

namespace {

/// As LinkStatistics::FindInterface. `group`: index of the interface that is configured for the
/// multicast group, 0: none.
int receiving_interface(const File& netlink, const SocketAddresses& addresses, unsigned group) {
  const auto& [local, remote] = addresses;
  if (!remote.given() && local.wildcard()) return 0;
  unsigned index = group;
  if (index == 0 && !remote.given() && !local.multicast())
    index = address_interface(netlink, local);
  try {
    if (index == 0)
      index = remote.given() ? route_interface(netlink, local, remote)
                             : route_interface(netlink, {}, local);
  } catch (const std::system_error&) {
    index = 0;  // There is no route now.
  }
  return index == 0 ? -1 : static_cast<int>(index);
}

}  // namespace

void Endpoint::count_losses() {
  if (port_.rx.empty()) return;
  const SocketAddress& group = client() ? remote() : local();
  const unsigned index =
      group.multicast() ? group_interface(name(), port_.config.address_, group) : 0;
  const bool stream = transport_ == Transport::TCP;
  losses_.emplace(name(),
                  stream ? LinkStatistics::Traffic::REPEATED : LinkStatistics::Traffic::SOME_FRAMES,
                  [addresses = addresses_, index](const File& netlink) {
                    return receiving_interface(netlink, addresses, index);
                  });
}

}  // namespace daqiri::sockets
