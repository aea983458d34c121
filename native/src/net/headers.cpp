#include "net/headers.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "net/byte_order.h"

namespace daqiri {

namespace {

constexpr std::uint32_t MAX_IPV4_LENGTH = 65535;
constexpr std::uint16_t ETHERTYPE_IPV4 = 0x0800;
constexpr std::uint8_t VERSION_AND_WORDS = 0x45;
constexpr std::uint8_t PROTOCOL_UDP = 17;
constexpr std::uint8_t TIME_TO_LIVE = 64;
constexpr std::uint16_t DONT_FRAGMENT = 0x4000;
constexpr std::uint32_t UDP_CHECKSUM_AT = UDP_AT + 6;

/// `before` bytes of headers and `payload` behind them, in the buffers and in what IPv4 can
/// announce.
bool fits(const PacketBytes& packet, std::uint32_t before, std::uint32_t payload) noexcept {
  return before <= packet.capacity() && payload <= packet.capacity() - before &&
         payload <= MAX_IPV4_LENGTH - (before - IPV4_AT);
}

}  // namespace

// --- Checksum

void Checksum::add(const std::uint8_t* data, std::size_t size) noexcept {
  if (size == 0) return;
  std::uint64_t sum = 0;
  std::size_t i = 0;
  for (; i + 4 <= size; i += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, data + i, sizeof word);
    sum += word;
  }
  if (i + 2 <= size) {
    std::uint16_t word = 0;
    std::memcpy(&word, data + i, sizeof word);
    sum += word;
    i += 2;
  }
  if (i < size) {
    std::uint16_t word = 0;
    std::memcpy(&word, data + i, 1);
    sum += word;
  }
  while (sum >> 16U != 0) sum = (sum & 0xFFFFU) + (sum >> 16U);
  // A piece that begins at an odd byte counts with its bytes swapped (RFC 1071, 2(B)).
  if (odd_) sum = (sum & 0xFFU) << 8U | sum >> 8U;
  sum_ += sum;
  odd_ = odd_ != (size % 2 == 1);
}

std::uint16_t Checksum::value() const noexcept {
  std::uint64_t sum = sum_;
  while (sum >> 16U != 0) sum = (sum & 0xFFFFU) + (sum >> 16U);
  auto folded = static_cast<std::uint16_t>(sum);
  if constexpr (std::endian::native == std::endian::little) {
    folded = static_cast<std::uint16_t>(folded << 8U | folded >> 8U);
  }
  return static_cast<std::uint16_t>(~folded);
}

// --- PacketBytes

PacketBytes::PacketBytes(const Burst& burst, std::uint32_t packet) noexcept {
  while (num_segments_ < MAX_NUM_SEGS && burst.owners[num_segments_] != nullptr) ++num_segments_;
  std::uint32_t lengths_set = 0;
  for (int s = 0; s < num_segments_; ++s) lengths_set += burst.pkt_lens[s][packet];
  const int last = num_segments_ - 1;
  for (int s = 0; s < num_segments_; ++s) {
    std::uint32_t size = burst.owners[s]->buf_size();
    if (s < last && lengths_set > 0) {
      size = std::min(size, burst.pkt_lens[s][packet]);
    } else if (s < last && s == 0) {
      size = std::min(size, HEADERS_SIZE);
    }
    data_[s] = static_cast<std::uint8_t*>(burst.pkts[s][packet]);
    sizes_[s] = size;
    capacity_ += size;
  }
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
  if (packet.capacity() < ETHERNET_SIZE) return false;
  std::uint8_t header[ETHERNET_SIZE];
  std::copy(destination.begin(), destination.end(), header);
  std::copy(source.begin(), source.end(), header + 6);
  store_be16(header + 12, ETHERTYPE_IPV4);
  packet.write(0, header, sizeof header);
  return true;
}

bool write_ipv4(PacketBytes& packet, const Ipv4Fields& fields) noexcept {
  if (!fits(packet, UDP_AT, fields.payload)) return false;
  std::uint8_t header[IPV4_SIZE]{VERSION_AND_WORDS, 0};
  store_be16(header + 2, static_cast<std::uint16_t>(IPV4_SIZE + fields.payload));
  store_be16(header + 4, fields.identification);
  store_be16(header + 6, DONT_FRAGMENT);
  header[8] = TIME_TO_LIVE;
  header[9] = fields.protocol;
  store_be32(header + 12, fields.source);
  store_be32(header + 16, fields.destination);
  Checksum checksum;
  checksum.add(header, sizeof header);
  store_be16(header + 10, checksum.value());
  packet.write(IPV4_AT, header, sizeof header);
  if (fields.protocol == PROTOCOL_UDP && fields.payload >= UDP_SIZE) {
    constexpr std::uint8_t NONE[2]{};
    packet.write(UDP_CHECKSUM_AT, NONE, sizeof NONE);
  }
  return true;
}

bool write_udp(PacketBytes& packet, const UdpFields& fields) noexcept {
  if (!fits(packet, HEADERS_SIZE, fields.payload)) return false;
  std::uint8_t header[UDP_SIZE]{};
  store_be16(header, fields.source);
  store_be16(header + 2, fields.destination);
  store_be16(header + 4, static_cast<std::uint16_t>(UDP_SIZE + fields.payload));
  packet.write(UDP_AT, header, sizeof header);
  return true;
}

bool write_udp_payload(PacketBytes& packet, const void* data, std::uint32_t size) noexcept {
  if (!fits(packet, HEADERS_SIZE, size)) return false;
  packet.write(HEADERS_SIZE, data, size);

  std::uint8_t ip[IPV4_SIZE]{};
  std::uint8_t udp[UDP_SIZE]{};
  packet.read(IPV4_AT, ip, sizeof ip);
  packet.read(UDP_AT, udp, sizeof udp);
  const std::uint16_t udp_length = load_be16(udp + 4);
  if (ip[0] != VERSION_AND_WORDS || ip[9] != PROTOCOL_UDP || udp_length != UDP_SIZE + size)
    return true;

  store_be16(udp + 6, 0);
  const std::uint8_t protocol[2]{0, PROTOCOL_UDP};
  Checksum checksum;
  // The pseudo header (RFC 768): addresses, protocol, UDP length.
  checksum.add(ip + 12, 8);
  checksum.add(protocol, sizeof protocol);
  checksum.add(udp + 4, 2);
  checksum.add(udp, sizeof udp);
  packet.add_to(checksum, HEADERS_SIZE, size);
  // 0 would mean "none".
  const std::uint16_t value = checksum.value() == 0 ? std::uint16_t{0xFFFF} : checksum.value();
  store_be16(udp + 6, value);
  packet.write(UDP_CHECKSUM_AT, udp + 6, 2);
  return true;
}

bool write_bare_payload(PacketBytes& packet, const void* data, std::uint32_t size) noexcept {
  if (size > packet.capacity()) return false;
  packet.write(0, data, size);
  return true;
}

}  // namespace daqiri
