/// IP and UDP headers of datagrams, which a socket does not pass on.
#pragma once

#include <memory>

#include "burst/burst.h"
#include "engines/socket/udp_peers.h"
#include "net/link_layer.h"

namespace daqiri::sockets {

/// Writes the headers that a datagram must have had.
///
/// Received packets: from the burst's peer to the local address; packets to be sent: the other way.
/// Of a socket bound to a wildcard the local address is the one from which this host reaches the
/// peer. A burst of which the peer is not known (to be sent without a connection, or over one that
/// is retired) has an unspecified one, port 0. TTL is 64 and the identification 0, which a socket
/// does not tell. IPv4: header checksum, UDP checksum 0 (none); IPv6: UDP checksum over the
/// packet's data. Lengths are those of the data, cut if they are. Formats: RFC 791, RFC 8200, RFC
/// 768.
class UdpLinkLayer final : public LinkLayer {
 public:
  /// `client`: the connection of a client, the only one whatever a burst says; 0: a server.
  UdpLinkLayer(std::shared_ptr<const UdpPeers> peers, const SocketAddress& local,
               std::uintptr_t client);

  [[nodiscard]] std::uint32_t link_type() const noexcept override { return LINKTYPE_RAW; }
  [[nodiscard]] bool reconstructs_headers() const noexcept override { return true; }
  /// Only the UDP checksum, which IPv4 does without, is over the data.
  [[nodiscard]] bool prefix_repeats() const noexcept override { return !local_.ipv6(); }
  [[nodiscard]] std::uint32_t prefix_size(std::uint32_t length) const noexcept override;
  std::uint32_t prefix(const BurstParams& burst, std::size_t i,
                       std::byte* out) const noexcept override;

 private:
  [[nodiscard]] BurstEnds peer_of(std::uintptr_t connection) const noexcept;

  std::shared_ptr<const UdpPeers> peers_;
  SocketAddress local_;
  std::uintptr_t client_;
  /// Stands for a peer that is not known.
  SocketAddress unknown_;
};

}  // namespace daqiri::sockets
