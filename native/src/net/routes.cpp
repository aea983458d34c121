#include "net/routes.h"

#include <arpa/inet.h>

#include <cstring>

#include "net/netlink.h"

namespace daqiri {

unsigned route_interface(const File& netlink, const SocketAddress& local, const SocketAddress& peer,
                         unsigned egress) {
  const bool bound = local.given() && !local.wildcard();
  const auto bits = static_cast<std::uint8_t>(peer.ipv6() ? 128 : 32);
  rtmsg route{};
  route.rtm_family = static_cast<std::uint8_t>(peer.family());
  route.rtm_dst_len = bits;
  route.rtm_src_len = bound ? bits : std::uint8_t{0};
  NetlinkRequest request(RTM_GETROUTE, 0, route);
  const auto add = [&](std::uint16_t attribute, const SocketAddress& address) {
    const std::uint32_t ipv4 = htonl(address.ipv4());
    if (address.ipv6()) return request.add(attribute, &address.ipv6_bytes(), sizeof(in6_addr));
    request.add(attribute, &ipv4, sizeof(ipv4));
  };
  add(RTA_DST, peer);
  if (bound) add(RTA_SRC, local);
  if (egress == 0) egress = peer.scope();
  if (egress != 0) request.add(RTA_OIF, &egress, sizeof(egress));
  unsigned index = 0;
  request.ask<rtmsg>(netlink, [&](const rtmsg&, const NetlinkAttributes& attributes) {
    index = attributes.value(RTA_OIF, index);
  });
  return index;
}

unsigned address_interface(const File& netlink, const SocketAddress& address) {
  ifaddrmsg wanted{};
  wanted.ifa_family = static_cast<std::uint8_t>(address.family());
  NetlinkRequest request(RTM_GETADDR, NLM_F_DUMP, wanted);
  unsigned index = 0;
  request.ask<ifaddrmsg>(netlink, [&](const ifaddrmsg& found, const NetlinkAttributes& attributes) {
    if (found.ifa_family != wanted.ifa_family) return;
    if (address.ipv6()) {
      const in6_addr own = attributes.value(IFA_ADDRESS, in6_addr{});
      const bool scoped = address.scope() != 0 && address.scope() != found.ifa_index;
      if (scoped || std::memcmp(&own, &address.ipv6_bytes(), sizeof own) != 0) return;
    } else if (ntohl(attributes.value(IFA_LOCAL, std::uint32_t{0})) != address.ipv4()) {
      // IFA_ADDRESS is that of the other end on a point-to-point link.
      return;
    }
    index = found.ifa_index;
  });
  return index;
}

}  // namespace daqiri
