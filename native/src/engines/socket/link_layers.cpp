#include "engines/socket/link_layers.h"

#include <netinet/tcp.h>

#include <algorithm>

namespace daqiri::sockets {

namespace {

/// Size of the hop-by-hop header with the length of a packet beyond 65535 bytes (RFC 2675).
constexpr std::uint32_t JUMBO_SIZE = 8;
constexpr std::uint8_t HOP_BY_HOP = 0;

/// Inserts it after the IPv6 header at `ip`.
void insert_jumbo(std::uint8_t* ip, std::uint32_t payload) noexcept {
  std::uint8_t* const option = ip + IPV6_SIZE;
  option[0] = PROTOCOL_TCP;
  option[1] = 0;
  option[2] = 0xC2;
  option[3] = 4;
  store_be32(option + 4, JUMBO_SIZE + payload);
  ip[6] = HOP_BY_HOP;
}

/// Whether the packet is too long for the length field of IP.
bool is_jumbo(std::uint32_t length) noexcept { return TCP_SIZE + length > 0xFFFFU; }

/// Bytes of the burst before packet `i`. Fast if packets are requested in order, as usual.
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

void add_data(Checksum& checksum, const Burst& burst, std::size_t packet) noexcept {
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s)
    checksum.add(burst.on_host(s, static_cast<std::uint32_t>(packet)), burst.pkt_lens[s][packet]);
}

}  // namespace

// --- UDP

std::uint32_t UdpLinkLayer::prefix(const BurstParams& burst, std::size_t i,
                                   std::byte* out) const noexcept {
  // Every BurstParams from the engine is a Burst.
  const auto& whole = static_cast<const Burst&>(burst);
  const auto packet = static_cast<std::uint32_t>(i);
  BurstEnds ends = whole.ends;
  if (whole.transmit) {
    const auto peer = peers_->find(client_ != 0 ? client_ : burst.connection_id);
    ends = peer.has_value() ? BurstEnds{peer->address, peer->local} : BurstEnds{};
  }
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
  // For IPv4, the checksum is optional.
  if (from.ipv6()) {
    checksum.add(udp, UDP_SIZE);
    add_data(checksum, whole, i);
    store_be16(udp + 6, checksum.udp_value());
  }
  return ip_bytes + UDP_SIZE;
}

// --- TCP

std::uint32_t TcpLinkLayer::begin(std::uintptr_t connection, const BurstEnds& ends) noexcept {
  const std::uint32_t number = latest_.load(std::memory_order_relaxed) + 1;
  const auto& [remote, local] = ends;
  stream(number).values.publish(
      {number, connection, remote[0], remote[1], remote[2], local[0], local[1], local[2]});
  stream(number).sent.store(0, std::memory_order_relaxed);
  latest_.store(number, std::memory_order_release);
  return number;
}

BurstEnds TcpLinkLayer::ends_of(std::uint32_t number) const noexcept {
  const auto values = stream(number).values.read();
  if (number == 0 || values[0] != number) return {};
  return {{values[2], values[3], values[4]}, {values[5], values[6], values[7]}};
}

std::uint32_t TcpLinkLayer::prefix_size(std::uint32_t length) const noexcept {
  const bool ipv6 = unknown_.ipv6();
  return ip_size(ipv6) + (ipv6 && is_jumbo(length) ? JUMBO_SIZE : 0) + TCP_SIZE;
}

void TcpLinkLayer::place_in_stream(Burst& burst) const noexcept {
  if (!burst.transmit || burst.stream.number != 0) return;
  // The newest stream of the connection (0: of any connection).
  const std::uint32_t latest = latest_.load(std::memory_order_acquire);
  std::uint32_t number = latest;
  while (number > 0 && latest - number < CAPACITY && burst.connection_id != 0 &&
         stream(number).values.read()[1] != burst.connection_id)
    --number;
  if (number == 0 || latest - number >= CAPACITY) return;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < burst.num_packets(); ++i) bytes += burst.packet_length(i);
  burst.stream = {number, stream(number).sent.fetch_add(bytes, std::memory_order_relaxed)};
}

std::uint32_t TcpLinkLayer::prefix(const BurstParams& params, std::size_t i,
                                   std::byte* out) const noexcept {
  // Every BurstParams from the engine is a Burst.
  const auto& burst = static_cast<const Burst&>(params);
  const auto packet = static_cast<std::uint32_t>(i);
  const std::uint32_t length = burst.packet_length(packet);
  const BurstEnds ends = ends_of(burst.stream.number);
  const bool known = ends.remote[0] != 0;
  const SocketAddress remote = known ? SocketAddress(ends.remote) : unknown_;
  const SocketAddress local = known ? SocketAddress(ends.local) : unknown_;
  const SocketAddress& from = burst.transmit ? local : remote;
  const SocketAddress& to = burst.transmit ? remote : local;
  const std::uint64_t acknowledged =
      burst.transmit ? 0 : stream(burst.stream.number).sent.load(std::memory_order_relaxed);

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
  // Sequence numbers as on the wire, modulo 2^32.
  store_be32(tcp + 4,
             static_cast<std::uint32_t>(1 + burst.stream.offset + bytes_before(burst, packet)));
  store_be32(tcp + 8, static_cast<std::uint32_t>(1 + acknowledged));
  tcp[12] = TCP_SIZE / 4 << 4U;
  tcp[13] = TH_PUSH | TH_ACK;
  store_be16(tcp + 14, 0xFFFF);
  store_be32(tcp + 16, 0);  // checksum, urgent pointer
  checksum.add(tcp, TCP_SIZE);
  add_data(checksum, burst, i);
  store_be16(tcp + 16, checksum.value());
  return at + TCP_SIZE;
}

}  // namespace daqiri::sockets
