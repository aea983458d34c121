/// IP and TCP headers of stream data, which a socket does not pass on.
#pragma once

#include <memory>

#include "engines/socket/tcp_streams.h"
#include "net/link_layer.h"

namespace daqiri::sockets {

/// Writes headers with which a dissector puts the stream together again.
///
/// A packet is what one read returned; on the wire it may have been several segments, or a part of
/// one. Its sequence number is 1 + its place in the stream, so that bytes that were dropped (flush,
/// drop-all) show as a gap. Bursts to be sent take their places in the order in which they are
/// first written to a file. Flags are PSH and ACK; there is no handshake. TTL is 64, the window
/// 65535, the identification 0. Checksums are right. A packet that is longer than IP can say has
/// length 0 in IPv4, as segmentation offload leaves it, and a jumbo payload option in IPv6.
/// Formats: RFC 791, RFC 8200, RFC 2675, RFC 9293.
class TcpLinkLayer final : public LinkLayer {
 public:
  /// `family`: of packets whose stream is unknown by now; their addresses are unspecified.
  TcpLinkLayer(std::shared_ptr<const TcpStreams> streams, int family);

  [[nodiscard]] std::uint32_t link_type() const noexcept override { return LINKTYPE_RAW; }
  [[nodiscard]] bool reconstructs_headers() const noexcept override { return true; }
  [[nodiscard]] std::uint32_t prefix_size(std::uint32_t length) const noexcept override;
  std::uint32_t prefix(const BurstParams& burst, std::size_t i,
                       std::byte* out) const noexcept override;
  void place_in_stream(Burst& burst) const noexcept override;

 private:
  std::shared_ptr<const TcpStreams> streams_;
  SocketAddress unknown_;
};

}  // namespace daqiri::sockets
