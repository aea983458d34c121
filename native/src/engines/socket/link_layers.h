/// Builds IP, UDP and TCP headers for recordings, because sockets deliver payloads only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "burst/burst.h"
#include "engines/socket/udp_peers.h"
#include "metrics/counters.h"
#include "net/headers.h"
#include "net/link_layer.h"
#include "net/socket_address.h"

namespace daqiri::sockets {

/// Packets begin with the IP header. Unknown addresses are unspecified, with port 0. TTL is 64 and
/// the identification 0, because a socket does not report them. Formats: RFC 791, RFC 8200.
class SocketLinkLayer : public LinkLayer {
 public:
  explicit SocketLinkLayer(int family)
      : unknown_(SocketAddress(AddressKey{static_cast<std::uint64_t>(family)})) {}

  [[nodiscard]] std::uint32_t link_type() const noexcept override { return LINKTYPE_RAW; }
  [[nodiscard]] bool reconstructs_headers() const noexcept override { return true; }

 protected:
  /// Used for unknown addresses.
  SocketAddress unknown_;
};

/// Reconstructs the headers of datagrams.
///
/// Received packets: from the burst's peer to the local address; packets for transmission: the
/// reverse. If the socket is bound to a wildcard, the local address is the source address for that
/// peer. The peer of bursts for transmission is unknown without a connection, or if the connection
/// is retired. IPv4: header checksum, UDP checksum 0 (none); IPv6: UDP checksum over the packet's
/// data. Lengths are those of the data, including truncation. Format: RFC 768.
class UdpLinkLayer final : public SocketLinkLayer {
 public:
  /// `client`: the connection of a client, used for all bursts; 0: a server.
  UdpLinkLayer(std::shared_ptr<const UdpPeers> peers, const SocketAddress& local,
               std::uintptr_t client)
      : SocketLinkLayer(local.family()), peers_(std::move(peers)), local_(local), client_(client) {}

  /// Only the UDP checksum depends on the data, and IPv4 omits it.
  [[nodiscard]] bool prefix_repeats() const noexcept override { return !local_.ipv6(); }
  [[nodiscard]] std::uint32_t prefix_size(std::uint32_t /*length*/) const noexcept override {
    return ip_size(local_.ipv6()) + UDP_SIZE;
  }
  std::uint32_t prefix(const BurstParams& burst, std::size_t i,
                       std::byte* out) const noexcept override;

 private:
  std::shared_ptr<const UdpPeers> peers_;
  SocketAddress local_;
  std::uintptr_t client_;
};

/// Writes headers from which a dissector can reassemble the stream.
///
/// A packet is what one read returned; on the wire it may have been several segments, or a part of
/// one. Its sequence number is 1 + its position in the stream, so that dropped bytes (flush,
/// drop-all) appear as a gap. Bursts for transmission get their positions in the order in which
/// they are first written to a file. Flags are PSH and ACK; there is no handshake. The window is
/// 65535. Checksums are valid. A packet that exceeds the length field of IP has length 0 in IPv4,
/// like packets with segmentation offload, and a jumbo payload option in IPv6. Formats: RFC 2675,
/// RFC 9293.
///
/// Stores the latest 2048 sockets of an interface by number, so that a burst's addresses are known
/// even after its connection has a new socket.
class TcpLinkLayer final : public SocketLinkLayer {
 public:
  using SocketLinkLayer::SocketLinkLayer;

  /// Start a new stream of a connection. Returns its number, never 0. One thread.
  std::uint32_t begin(std::uintptr_t connection, const BurstEnds& ends) noexcept;

  [[nodiscard]] std::uint32_t prefix_size(std::uint32_t length) const noexcept override;
  std::uint32_t prefix(const BurstParams& burst, std::size_t i,
                       std::byte* out) const noexcept override;
  void place_in_stream(Burst& burst) const noexcept override;

 private:
  static constexpr std::uint32_t CAPACITY = 2048;
  struct Stream {
    /// Number, connection, and the keys of both addresses.
    CounterGroup<8> values;
    /// Bytes of bursts for transmission that have a position in the stream.
    std::atomic<std::uint64_t> sent{0};
  };
  [[nodiscard]] Stream& stream(std::uint32_t number) const noexcept {
    return (*streams_)[number % CAPACITY];
  }
  /// Returns no addresses if the stream is no longer stored.
  [[nodiscard]] BurstEnds ends_of(std::uint32_t number) const noexcept;

  std::unique_ptr<std::array<Stream, CAPACITY>> streams_ =
      std::make_unique<std::array<Stream, CAPACITY>>();
  std::atomic<std::uint32_t> latest_{0};
};

}  // namespace daqiri::sockets
