#include "engines/socket/udp_link_layer.h"

#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace daqiri::sockets {

namespace {

constexpr std::uint8_t HOP_LIMIT = 64;
constexpr std::uint16_t IP_DONT_FRAGMENT = 0x4000;

/// Internet checksum (RFC 1071) over pieces of any length.
class Checksum {
 public:
  void add(const void* data, std::size_t length) noexcept {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    if (odd_ && length > 0) {
      sum_ += *bytes++;
      --length;
      odd_ = false;
    }
    for (; length >= 2; bytes += 2, length -= 2)
      sum_ += static_cast<std::uint32_t>(bytes[0] << 8U | bytes[1]);
    if (length == 1) {
      sum_ += static_cast<std::uint32_t>(*bytes << 8U);
      odd_ = true;
    }
  }
  /// Network byte order.
  [[nodiscard]] std::uint16_t value() const noexcept {
    std::uint64_t sum = sum_;
    while (sum >> 16U != 0) sum = (sum & 0xFFFFU) + (sum >> 16U);
    return htons(static_cast<std::uint16_t>(~sum));
  }

 private:
  std::uint64_t sum_{0};
  bool odd_{false};
};

std::uint32_t ipv4_udp(const SocketAddress& from, const SocketAddress& to, std::uint32_t length,
                       std::byte* out) noexcept {
  udphdr udp{};
  udp.uh_sport = htons(from.port());
  udp.uh_dport = htons(to.port());
  udp.uh_ulen =
      htons(static_cast<std::uint16_t>(std::min<std::uint32_t>(sizeof(udp) + length, 0xFFFF)));
  iphdr ip{};
  ip.version = 4;
  ip.ihl = sizeof(ip) / 4;
  ip.tot_len = htons(static_cast<std::uint16_t>(
      std::min<std::uint32_t>(sizeof(ip) + sizeof(udp) + length, 0xFFFF)));
  ip.frag_off = htons(IP_DONT_FRAGMENT);
  ip.ttl = HOP_LIMIT;
  ip.protocol = IPPROTO_UDP;
  ip.saddr = htonl(from.ipv4());
  ip.daddr = htonl(to.ipv4());
  Checksum sum;
  sum.add(&ip, sizeof(ip));
  ip.check = sum.value();
  std::memcpy(out, &ip, sizeof(ip));
  std::memcpy(out + sizeof(ip), &udp, sizeof(udp));
  return sizeof(ip) + sizeof(udp);
}

std::uint32_t ipv6_udp(const SocketAddress& from, const SocketAddress& to, std::uint32_t length,
                       const BurstParams& burst, std::size_t i, std::byte* out) noexcept {
  udphdr udp{};
  udp.uh_sport = htons(from.port());
  udp.uh_dport = htons(to.port());
  const auto udp_length =
      static_cast<std::uint16_t>(std::min<std::uint32_t>(sizeof(udp) + length, 0xFFFF));
  udp.uh_ulen = htons(udp_length);
  ip6_hdr ip{};
  ip.ip6_flow = htonl(6U << 28U);
  ip.ip6_plen = htons(udp_length);
  ip.ip6_nxt = IPPROTO_UDP;
  ip.ip6_hlim = HOP_LIMIT;
  ip.ip6_src = from.ipv6_bytes();
  ip.ip6_dst = to.ipv6_bytes();
  Checksum sum;
  sum.add(&ip.ip6_src, sizeof(ip.ip6_src));
  sum.add(&ip.ip6_dst, sizeof(ip.ip6_dst));
  const std::uint32_t pseudo[2]{htonl(udp_length), htonl(IPPROTO_UDP)};
  sum.add(pseudo, sizeof(pseudo));
  sum.add(&udp, sizeof(udp));
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) sum.add(burst.pkts[s][i], burst.pkt_lens[s][i]);
  // A sum of 0 is sent as all ones: 0 means none.
  udp.uh_sum = sum.value() == 0 ? 0xFFFF : sum.value();
  std::memcpy(out, &ip, sizeof(ip));
  std::memcpy(out + sizeof(ip), &udp, sizeof(udp));
  return sizeof(ip) + sizeof(udp);
}

}  // namespace

UdpLinkLayer::UdpLinkLayer(std::shared_ptr<const UdpPeers> peers, const SocketAddress& local,
                           std::uintptr_t client)
    : peers_(std::move(peers)),
      local_(local),
      client_(client),
      unknown_(SocketAddress(AddressKey{static_cast<std::uint64_t>(local.family())})) {}

BurstEnds UdpLinkLayer::peer_of(std::uintptr_t connection) const noexcept {
  const auto peer = peers_->find(client_ != 0 ? client_ : connection);
  return peer.has_value() ? BurstEnds{peer->address, peer->local} : BurstEnds{};
}

std::uint32_t UdpLinkLayer::prefix(const BurstParams& burst, std::size_t i,
                                   std::byte* out) const noexcept {
  // Every BurstParams that leaves the engine is a Burst.
  const Burst& whole = static_cast<const Burst&>(burst);
  const BurstEnds ends = whole.transmit ? peer_of(burst.connection_id) : whole.ends;
  const bool known = ends.remote[0] != 0;
  const SocketAddress remote = known ? SocketAddress(ends.remote) : unknown_;
  const SocketAddress local = known ? SocketAddress(ends.local) : local_;
  const SocketAddress& from = whole.transmit ? local : remote;
  const SocketAddress& to = whole.transmit ? remote : local;
  std::uint32_t length = 0;
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) length += burst.pkt_lens[s][i];
  return local_.ipv6() ? ipv6_udp(from, to, length, burst, i, out)
                       : ipv4_udp(from, to, length, out);
}

}  // namespace daqiri::sockets
