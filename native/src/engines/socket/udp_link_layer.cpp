#include "engines/socket/udp_link_layer.h"

#include <algorithm>
#include <utility>

#include "net/headers.h"

namespace daqiri::sockets {

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

std::uint32_t UdpLinkLayer::prefix_size(std::uint32_t /*length*/) const noexcept {
  return ip_size(local_.ipv6()) + UDP_SIZE;
}

std::uint32_t UdpLinkLayer::prefix(const BurstParams& burst, std::size_t i,
                                   std::byte* out) const noexcept {
  // Every BurstParams that leaves the engine is a Burst.
  const auto& whole = static_cast<const Burst&>(burst);
  const auto packet = static_cast<std::uint32_t>(i);
  const BurstEnds ends = whole.transmit ? peer_of(burst.connection_id) : whole.ends;
  const bool known = ends.remote[0] != 0;
  const SocketAddress remote = known ? SocketAddress(ends.remote) : unknown_;
  const SocketAddress local = known ? SocketAddress(ends.local) : local_;
  const SocketAddress& from = whole.transmit ? local : remote;
  const SocketAddress& to = whole.transmit ? remote : local;
  const std::uint32_t udp_length = std::min(UDP_SIZE + whole.packet_length(packet), 0xFFFFU);
  auto* const ip = reinterpret_cast<std::uint8_t*>(out);
  Checksum checksum;
  const std::uint32_t ip_bytes = store_ip(ip, from, to, PROTOCOL_UDP, udp_length, checksum);
  std::uint8_t* const udp = ip + ip_bytes;
  store_udp(udp, from.port(), to.port(), static_cast<std::uint16_t>(udp_length), 0);
  // IPv4 does without.
  if (from.ipv6()) {
    checksum.add(udp, UDP_SIZE);
    for (int s = 0; s < burst.hdr.hdr.num_segs; ++s)
      checksum.add(burst.pkts[s][i], burst.pkt_lens[s][i]);
    store_be16(udp + 6, checksum.udp_value());
  }
  return ip_bytes + UDP_SIZE;
}

}  // namespace daqiri::sockets
