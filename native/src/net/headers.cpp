#include "net/headers.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace daqiri {

namespace {

constexpr std::uint32_t MAX_IPV4_LENGTH = 65535;
constexpr std::uint32_t UDP_CHECKSUM_AT = UDP_AT + 6;

/// Whether `before` bytes of headers and `payload` bytes after them fit the buffers and the length
/// field of IPv4.
bool fits(PacketBytes& packet, std::uint32_t before, std::uint32_t payload) noexcept {
  return packet.reaches(before) && payload <= packet.capacity() - before &&
         payload <= MAX_IPV4_LENGTH - (before - IPV4_AT);
}

/// Starts a checksum with the pseudo header for `payload` bytes; `addresses`: both, as in the IP
/// header.
Checksum pseudo_header(const std::uint8_t* addresses, std::size_t size, std::uint8_t protocol,
                       std::uint32_t payload) noexcept {
  std::uint8_t rest[8]{};
  store_be32(rest, payload);
  rest[7] = protocol;
  Checksum checksum;
  checksum.add(addresses, size);
  checksum.add(rest, sizeof rest);
  return checksum;
}

}  // namespace

bool parse_mac(std::string_view text, MacAddress& mac) noexcept {
  constexpr std::size_t PAIR = 3;  // including the colon
  if (text.size() != PAIR * mac.size() - 1) return false;
  for (std::size_t i = 0; i < mac.size(); ++i) {
    const char* digits = text.data() + PAIR * i;
    if (i > 0 && digits[-1] != ':') return false;
    if (std::from_chars(digits, digits + 2, mac[i], 16).ptr != digits + 2) return false;
  }
  return true;
}

// --- Headers as bytes

void Ipv4Header::store(std::uint8_t* out) const noexcept {
  out[0] = 0x45;  // version 4, 5 words
  out[1] = service;
  store_be16(out + 2, length);
  store_be16(out + 4, identification);
  store_be16(out + 6, fragment);
  out[8] = time_to_live;
  out[9] = protocol;
  store_be16(out + 10, 0);
  store_be32(out + 12, source);
  store_be32(out + 16, destination);
  Checksum checksum;
  checksum.add(out, IPV4_SIZE);
  store_be16(out + 10, checksum.value());
}

bool Ipv6Header::parse(const std::uint8_t* at, std::uint32_t captured) noexcept {
  if (captured < IPV6_SIZE || at[0] >> 4U != 6) return false;
  size = IPV6_SIZE;
  length = load_be16(at + 4);
  protocol = at[6];
  hop_limit = at[7];
  fragment = 0;
  has_payload = false;
  // 0: a jumbogram, or the network card would have set it.
  if (length != 0) captured = std::min(captured, IPV6_SIZE + length);
  for (unsigned i = 0; i <= MOST_IPV6_EXTENSIONS; ++i) {
    const bool options = std::ranges::find(IPV6_OPTIONS, protocol) != std::end(IPV6_OPTIONS);
    has_payload = !options && protocol != IPV6_FRAGMENT;
    if (has_payload || i == MOST_IPV6_EXTENSIONS || captured - size < IPV6_EXTENSION_SIZE) break;
    const std::uint8_t* extension = at + size;
    const std::uint32_t extension_size =
        options ? IPV6_EXTENSION_SIZE * (extension[1] + 1U) : IPV6_EXTENSION_SIZE;
    if (captured - size < extension_size) break;
    // The headers after that of a later fragment are in the first one.
    if (!options) fragment |= load_be16(extension + 2) & 0xFFF9U;
    protocol = extension[0];
    size += extension_size;
    if (!first_fragment()) break;
  }
  return true;
}

void store_udp(std::uint8_t* out, std::uint16_t source, std::uint16_t destination,
               std::uint16_t length, std::uint16_t checksum) noexcept {
  store_be16(out, source);
  store_be16(out + 2, destination);
  store_be16(out + 4, length);
  store_be16(out + 6, checksum);
}

std::uint32_t store_ip(std::uint8_t* out, const SocketAddress& from, const SocketAddress& to,
                       std::uint8_t protocol, std::uint32_t payload, Checksum& checksum) noexcept {
  const auto announced = [](std::uint32_t length) {
    return length > 0xFFFFU ? std::uint16_t{0} : static_cast<std::uint16_t>(length);
  };
  if (from.ipv6()) {
    store_be32(out, 6U << 28U);
    store_be16(out + 4, announced(payload));
    out[6] = protocol;
    out[7] = 64;  // hop limit
    std::memcpy(out + 8, &from.ipv6_bytes(), 16);
    std::memcpy(out + 24, &to.ipv6_bytes(), 16);
    checksum = pseudo_header(out + 8, 32, protocol, payload);
    return IPV6_SIZE;
  }
  Ipv4Header{.length = announced(IPV4_SIZE + payload),
             .protocol = protocol,
             .source = from.ipv4(),
             .destination = to.ipv4()}
      .store(out);
  checksum = pseudo_header(out + 12, 8, protocol, payload);
  return IPV4_SIZE;
}

// --- PacketBytes

PacketBytes::PacketBytes(const Burst& burst, std::uint32_t packet) noexcept {
  while (num_segments_ < MAX_NUM_SEGS && burst.owners[num_segments_] != nullptr) ++num_segments_;
  std::uint32_t lengths_set = 0;
  for (int s = 0; s < num_segments_; ++s) lengths_set += burst.pkt_lens[s][packet];
  const int last = num_segments_ - 1;
  for (int s = 0; s < num_segments_; ++s) {
    const std::uint32_t buffer = burst.owners[s]->buf_size();
    std::uint32_t size = buffer;
    if (s < last && lengths_set > 0) {
      size = std::min(size, burst.pkt_lens[s][packet]);
    } else if (s < last && s == 0) {
      size = std::min(size, HEADERS_SIZE);
      spare_ = buffer - size;
    }
    // Payloads in memory that only a GPU can write are left out.
    if (!burst.host_readable(s)) size = 0;
    data_[s] = static_cast<std::uint8_t*>(burst.pkts[s][packet]);
    sizes_[s] = size;
    reach_ += size;
    capacity_ += buffer;
  }
}

bool PacketBytes::reaches(std::uint32_t size) noexcept {
  if (size > reach_) {
    sizes_[0] += spare_;
    reach_ += std::exchange(spare_, 0);
  }
  return size <= reach_;
}

template <typename F>
void PacketBytes::walk(std::uint32_t offset, std::uint32_t size, F&& piece) const noexcept {
  for (int s = 0; s < num_segments_ && size > 0; ++s) {
    if (offset >= sizes_[s]) {
      offset -= sizes_[s];
      continue;
    }
    const std::uint32_t n = std::min(size, sizes_[s] - offset);
    piece(data_[s] + offset, n);
    offset = 0;
    size -= n;
  }
}

void PacketBytes::write(std::uint32_t offset, const void* data, std::uint32_t size) noexcept {
  const auto* from = static_cast<const std::uint8_t*>(data);
  walk(offset, size, [&](std::uint8_t* at, std::uint32_t n) {
    if (at != from) std::memmove(at, from, n);
    from += n;
  });
}

void PacketBytes::read(std::uint32_t offset, void* data, std::uint32_t size) const noexcept {
  auto* to = static_cast<std::uint8_t*>(data);
  walk(offset, size, [&](const std::uint8_t* at, std::uint32_t n) {
    std::memcpy(to, at, n);
    to += n;
  });
}

void PacketBytes::add_to(Checksum& checksum, std::uint32_t offset,
                         std::uint32_t size) const noexcept {
  walk(offset, size, [&](const std::uint8_t* at, std::uint32_t n) { checksum.add(at, n); });
}

// --- Headers

bool write_ethernet(PacketBytes& packet, const MacAddress& destination,
                    const MacAddress& source) noexcept {
  if (!packet.reaches(ETHERNET_SIZE)) return false;
  std::uint8_t header[ETHERNET_SIZE];
  std::copy(destination.begin(), destination.end(), header);
  std::copy(source.begin(), source.end(), header + 6);
  store_be16(header + 12, ETHERTYPE_IPV4);
  packet.write(0, header, sizeof header);
  return true;
}

bool write_ipv4(PacketBytes& packet, const Ipv4Fields& fields) noexcept {
  if (!fits(packet, UDP_AT, fields.payload)) return false;
  std::uint8_t header[IPV4_SIZE];
  Ipv4Header{.length = static_cast<std::uint16_t>(IPV4_SIZE + fields.payload),
             .identification = fields.identification,
             .protocol = fields.protocol,
             .source = fields.source,
             .destination = fields.destination}
      .store(header);
  packet.write(IPV4_AT, header, sizeof header);
  if (fields.protocol == PROTOCOL_UDP && fields.payload >= UDP_SIZE) {
    constexpr std::uint8_t NONE[2]{};
    packet.write(UDP_CHECKSUM_AT, NONE, sizeof NONE);
  }
  return true;
}

bool write_udp(PacketBytes& packet, const UdpFields& fields) noexcept {
  if (!fits(packet, HEADERS_SIZE, fields.payload)) return false;
  std::uint8_t header[UDP_SIZE];
  store_udp(header, fields.source, fields.destination,
            static_cast<std::uint16_t>(UDP_SIZE + fields.payload), 0);
  packet.write(UDP_AT, header, sizeof header);
  return true;
}

bool write_udp_payload(PacketBytes& packet, const void* data, std::uint32_t size) noexcept {
  if (!fits(packet, HEADERS_SIZE, size) || !packet.reaches(HEADERS_SIZE + size)) return false;
  packet.write(HEADERS_SIZE, data, size);

  std::uint8_t bytes[IPV4_SIZE]{};
  std::uint8_t udp[UDP_SIZE]{};
  packet.read(IPV4_AT, bytes, sizeof bytes);
  packet.read(UDP_AT, udp, sizeof udp);
  Ipv4Header ip;
  const bool announced = ip.parse(bytes, sizeof bytes) && ip.protocol == PROTOCOL_UDP &&
                         load_be16(udp + 4) == UDP_SIZE + size;
  if (!announced) return true;
  store_be16(udp + 6, 0);
  Checksum checksum = pseudo_header(bytes + 12, 8, PROTOCOL_UDP, UDP_SIZE + size);
  checksum.add(udp, sizeof udp);
  packet.add_to(checksum, HEADERS_SIZE, size);
  store_be16(udp + 6, checksum.udp_value());
  packet.write(UDP_CHECKSUM_AT, udp + 6, 2);
  return true;
}

bool write_bare_payload(PacketBytes& packet, const void* data, std::uint32_t size) noexcept {
  // There are no headers, so the first segment can be filled completely.
  static_cast<void>(packet.reaches(packet.capacity()));
  if (!packet.reaches(size)) return false;
  packet.write(0, data, size);
  return true;
}

}  // namespace daqiri
