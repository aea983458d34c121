#include "engines/socket/tcp_link_layer.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>

#include <cstring>
#include <utility>

#include "burst/burst.h"
#include "net/headers.h"

namespace daqiri::sockets {

namespace {

constexpr std::uint8_t TTL = 64;
constexpr std::uint16_t DONT_FRAGMENT = 0x4000;

struct Segment {
  SocketAddress from;
  SocketAddress to;
  std::uint32_t sequence;
  std::uint32_t acknowledged;
  std::uint32_t length;
};

/// Hop-by-hop header that says the length of a packet beyond 65535 bytes (RFC 2675).
struct JumboOption {
  std::uint8_t next{IPPROTO_TCP};
  std::uint8_t extra_words{0};
  std::uint8_t type{0xC2};
  std::uint8_t size{4};
  std::uint32_t length{0};
};
static_assert(sizeof(JumboOption) == 8);

template <typename T>
void add(Checksum& sum, const T& value) noexcept {
  sum.add(reinterpret_cast<const std::uint8_t*>(&value), sizeof(value));
}

/// In network byte order; 0 when it does not fit.
std::uint16_t length_field(std::uint64_t length) noexcept {
  return length > 0xFFFF ? std::uint16_t{0} : htons(static_cast<std::uint16_t>(length));
}

/// `sum` has the pseudo header.
void write_tcp(const Segment& segment, Checksum sum, const BurstParams& burst, std::size_t i,
               std::byte* out) noexcept {
  tcphdr tcp{};
  tcp.th_sport = htons(segment.from.port());
  tcp.th_dport = htons(segment.to.port());
  tcp.th_seq = htonl(segment.sequence);
  tcp.th_ack = htonl(segment.acknowledged);
  tcp.th_off = sizeof(tcp) / 4;
  tcp.th_flags = TH_PUSH | TH_ACK;
  tcp.th_win = htons(0xFFFF);
  add(sum, tcp);
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s)
    sum.add(static_cast<const std::uint8_t*>(burst.pkts[s][i]), burst.pkt_lens[s][i]);
  tcp.th_sum = htons(sum.value());
  std::memcpy(out, &tcp, sizeof(tcp));
}

std::uint32_t write_ipv4(const Segment& segment, const BurstParams& burst, std::size_t i,
                         std::byte* out) noexcept {
  iphdr ip{};
  ip.version = 4;
  ip.ihl = sizeof(ip) / 4;
  ip.tot_len = length_field(sizeof(ip) + sizeof(tcphdr) + std::uint64_t{segment.length});
  ip.frag_off = htons(DONT_FRAGMENT);
  ip.ttl = TTL;
  ip.protocol = IPPROTO_TCP;
  ip.saddr = htonl(segment.from.ipv4());
  ip.daddr = htonl(segment.to.ipv4());
  Checksum header;
  add(header, ip);
  ip.check = htons(header.value());
  Checksum sum;
  add(sum, ip.saddr);
  add(sum, ip.daddr);
  add(sum, htons(IPPROTO_TCP));
  add(sum, htonl(static_cast<std::uint32_t>(sizeof(tcphdr) + segment.length)));
  std::memcpy(out, &ip, sizeof(ip));
  write_tcp(segment, sum, burst, i, out + sizeof(ip));
  return sizeof(ip) + sizeof(tcphdr);
}

std::uint32_t write_ipv6(const Segment& segment, const BurstParams& burst, std::size_t i,
                         std::byte* out) noexcept {
  ip6_hdr ip{};
  ip.ip6_flow = htonl(6U << 28U);
  ip.ip6_plen = length_field(sizeof(tcphdr) + std::uint64_t{segment.length});
  ip.ip6_nxt = IPPROTO_TCP;
  ip.ip6_hlim = TTL;
  ip.ip6_src = segment.from.ipv6_bytes();
  ip.ip6_dst = segment.to.ipv6_bytes();
  Checksum sum;
  add(sum, ip.ip6_src);
  add(sum, ip.ip6_dst);
  add(sum, htonl(static_cast<std::uint32_t>(sizeof(tcphdr) + segment.length)));
  add(sum, htonl(IPPROTO_TCP));
  std::uint32_t before = sizeof(ip);
  if (ip.ip6_plen == 0) {
    const JumboOption jumbo{.length = htonl(static_cast<std::uint32_t>(
                                sizeof(JumboOption) + sizeof(tcphdr) + segment.length))};
    ip.ip6_nxt = IPPROTO_HOPOPTS;
    std::memcpy(out + before, &jumbo, sizeof(jumbo));
    before += sizeof(jumbo);
  }
  std::memcpy(out, &ip, sizeof(ip));
  write_tcp(segment, sum, burst, i, out + before);
  return before + sizeof(tcphdr);
}

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

std::uint32_t TcpLinkLayer::prefix(const BurstParams& params, std::size_t i,
                                   std::byte* out) const noexcept {
  // Every BurstParams that leaves the engine is a Burst.
  const auto& burst = static_cast<const Burst&>(params);
  const auto packet = static_cast<std::uint32_t>(i);
  const std::uint32_t number =
      burst.transmit ? streams_->of(burst.connection_id) : burst.stream.number;
  TcpStreams::Ends ends = streams_->ends(number);
  if (!ends.peer.given()) ends = {unknown_, unknown_};
  Segment segment{ends.peer, ends.local, 0, 0, burst.packet_length(packet)};
  std::atomic<std::uint64_t>& sent = streams_->sent(number);
  // Sequence numbers are those of the wire, modulo 2^32.
  if (burst.transmit) {
    std::swap(segment.from, segment.to);
    segment.sequence =
        static_cast<std::uint32_t>(1 + sent.fetch_add(segment.length, std::memory_order_relaxed));
    segment.acknowledged = 1;
  } else {
    segment.sequence =
        static_cast<std::uint32_t>(1 + burst.stream.offset + bytes_before(burst, packet));
    segment.acknowledged = static_cast<std::uint32_t>(1 + sent.load(std::memory_order_relaxed));
  }
  return segment.from.ipv6() ? write_ipv6(segment, params, i, out)
                             : write_ipv4(segment, params, i, out);
}

}  // namespace daqiri::sockets
