#include "engines/socket/tcp_link_layer.h"

#include <netinet/tcp.h>

#include <utility>

#include "burst/burst.h"
#include "net/headers.h"

namespace daqiri::sockets {

namespace {

/// Hop-by-hop header that says the length of a packet beyond 65535 bytes (RFC 2675).
constexpr std::uint32_t JUMBO_SIZE = 8;
constexpr std::uint8_t HOP_BY_HOP = 0;

/// With the IPv6 header before it that `ip` has been given.
void insert_jumbo(std::uint8_t* ip, std::uint32_t payload) noexcept {
  std::uint8_t* const option = ip + IPV6_SIZE;
  option[0] = PROTOCOL_TCP;
  option[1] = 0;
  option[2] = 0xC2;
  option[3] = 4;
  store_be32(option + 4, JUMBO_SIZE + payload);
  ip[6] = HOP_BY_HOP;
}

/// What IP cannot announce.
bool is_jumbo(std::uint32_t length) noexcept { return TCP_SIZE + length > 0xFFFFU; }

/// Bytes of the burst before packet `i`. Packets are asked for in order, as a rule.
std::uint64_t bytes_before(const Burst& burst, std::uint32_t i) noexcept {
  struct Place {
    const Burst* burst{nullptr};
    StreamPosition stream;
    std::uint32_t packet{0};
    std::uint64_t bytes{0};
  };
  thread_local Place last;
  const bool known = last.burst == &burst && last.stream.number == burst.stream.number &&
                     last.stream.offset == burst.stream.offset && last.packet <= i;
  if (!known) last = {&burst, burst.stream, 0, 0};
  for (; last.packet < i; ++last.packet) last.bytes += burst.packet_length(last.packet);
  return last.bytes;
}

}  // namespace

TcpLinkLayer::TcpLinkLayer(std::shared_ptr<const TcpStreams> streams, int family)
    : streams_(std::move(streams)),
      unknown_(SocketAddress(AddressKey{static_cast<std::uint64_t>(family)})) {}

std::uint32_t TcpLinkLayer::prefix_size(std::uint32_t length) const noexcept {
  const bool ipv6 = unknown_.ipv6();
  return ip_size(ipv6) + (ipv6 && is_jumbo(length) ? JUMBO_SIZE : 0) + TCP_SIZE;
}

void TcpLinkLayer::place_in_stream(Burst& burst) const noexcept {
  if (!burst.transmit || burst.stream.number != 0) return;
  const std::uint32_t number = streams_->of(burst.connection_id);
  if (number == 0) return;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < burst.num_packets(); ++i) bytes += burst.packet_length(i);
  burst.stream = {number, streams_->sent(number).fetch_add(bytes, std::memory_order_relaxed)};
}

std::uint32_t TcpLinkLayer::prefix(const BurstParams& params, std::size_t i,
                                   std::byte* out) const noexcept {
  // Every BurstParams that leaves the engine is a Burst.
  const auto& burst = static_cast<const Burst&>(params);
  const auto packet = static_cast<std::uint32_t>(i);
  const std::uint32_t length = burst.packet_length(packet);
  TcpStreams::Ends ends = streams_->ends(burst.stream.number);
  if (!ends.peer.given()) ends = {unknown_, unknown_};
  const SocketAddress& from = burst.transmit ? ends.local : ends.peer;
  const SocketAddress& to = burst.transmit ? ends.peer : ends.local;
  const std::uint64_t acknowledged =
      burst.transmit ? 0 : streams_->sent(burst.stream.number).load(std::memory_order_relaxed);

  auto* const ip = reinterpret_cast<std::uint8_t*>(out);
  Checksum checksum;
  std::uint32_t at = store_ip(ip, from, to, PROTOCOL_TCP, TCP_SIZE + length, checksum);
  if (from.ipv6() && is_jumbo(length)) {
    insert_jumbo(ip, TCP_SIZE + length);
    at += JUMBO_SIZE;
  }
  std::uint8_t* const tcp = ip + at;
  store_be16(tcp, from.port());
  store_be16(tcp + 2, to.port());
  // Those of the wire, modulo 2^32.
  store_be32(tcp + 4,
             static_cast<std::uint32_t>(1 + burst.stream.offset + bytes_before(burst, packet)));
  store_be32(tcp + 8, static_cast<std::uint32_t>(1 + acknowledged));
  tcp[12] = TCP_SIZE / 4 << 4U;
  tcp[13] = TH_PUSH | TH_ACK;
  store_be16(tcp + 14, 0xFFFF);
  store_be32(tcp + 16, 0);  // checksum, urgent pointer
  checksum.add(tcp, TCP_SIZE);
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s)
    checksum.add(burst.pkts[s][i], burst.pkt_lens[s][i]);
  store_be16(tcp + 16, checksum.value());
  return at + TCP_SIZE;
}

}  // namespace daqiri::sockets
