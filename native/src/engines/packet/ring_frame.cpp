#include "engines/packet/ring_frame.h"

#include <linux/if_packet.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cstring>

#include "net/headers.h"

namespace daqiri::packet {

namespace {

/// Destination and source addresses.
constexpr std::uint32_t ADDRESS_BYTES = 12;

/// VIRTIO_NET_HDR_GSO_TCPV4, _TCPV6 and _UDP_L4, and a flag of the first two.
constexpr std::uint8_t OF_TCP_IPV4 = 1;
constexpr std::uint8_t OF_TCP_IPV6 = 4;
constexpr std::uint8_t OF_UDP = 5;
constexpr std::uint8_t WITH_ECN = 0x80;

constexpr std::uint16_t ETHERTYPE_VLAN_TAG = 0x8100;

constexpr std::uint32_t UDP_CHECKSUM = 6;
constexpr std::uint32_t TCP_CHECKSUM = 16;
constexpr std::uint32_t TCP_FLAGS = 13;

void restore_tag(const tpacket3_hdr& head, RingFrame& found) noexcept {
  Frame& frame = found.frame;
  const bool tells = (head.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
  const std::uint16_t tpid = tells ? head.hv1.tp_vlan_tpid : ETHERTYPE_VLAN_TAG;
  std::memmove(frame.data - TAG_BYTES, frame.data, ADDRESS_BYTES);
  frame.data -= TAG_BYTES;
  store_be16(frame.data + ADDRESS_BYTES, tpid);
  store_be16(frame.data + ADDRESS_BYTES + 2, static_cast<std::uint16_t>(head.hv1.tp_vlan_tci));
  frame.length += TAG_BYTES;
  frame.wire_length += TAG_BYTES;
  found.offload.checksum_start =
      static_cast<std::uint16_t>(found.offload.checksum_start + TAG_BYTES);
}

}  // namespace

RingFrame read_frame(std::byte* at, bool with_offload) noexcept {
  const auto& head = *reinterpret_cast<const tpacket3_hdr*>(at);
  RingFrame found;
  Frame& frame = found.frame;
  frame.data = reinterpret_cast<std::uint8_t*>(at + head.tp_mac);
  frame.length = head.tp_snaplen;
  frame.wire_length = head.tp_len;
  frame.time = std::uint64_t{head.tp_sec} * 1'000'000'000U + head.tp_nsec;
  found.card_time = (head.tp_status & TP_STATUS_TS_RAW_HARDWARE) != 0;
  // Before the tag, which overwrites it.
  if (with_offload && (head.tp_status & TP_STATUS_CSUMNOTREADY) != 0)
    std::memcpy(&found.offload, frame.data - sizeof found.offload, sizeof found.offload);
  if ((head.tp_status & TP_STATUS_VLAN_VALID) != 0 && frame.length >= ADDRESS_BYTES)
    restore_tag(head, found);
  const Offload& offload = found.offload;
  const std::uint32_t field = std::uint32_t{offload.checksum_start} + offload.checksum_field;
  // Others need not be Internet checksums: SCTP's is CRC32c.
  const bool known =
      offload.checksum_field == UDP_CHECKSUM || offload.checksum_field == TCP_CHECKSUM;
  frame.checksum_open = known && (offload.flags & Offload::NEEDS_CHECKSUM) != 0 &&
                        frame.length == frame.wire_length && field + 2 <= frame.length;
  return found;
}

void complete_checksum(const RingFrame& whole) noexcept {
  std::uint8_t* const start = whole.frame.data + whole.offload.checksum_start;
  // The field has the sum of the pseudo header.
  Checksum checksum;
  checksum.add(start, whole.frame.length - whole.offload.checksum_start);
  const bool udp = whole.offload.checksum_field == UDP_CHECKSUM;
  store_be16(start + whole.offload.checksum_field, udp ? checksum.udp_value() : checksum.value());
}

bool CutFrame::begin(const RingFrame& whole) noexcept {
  const Offload& offload = whole.offload;
  const auto kind = static_cast<std::uint8_t>(offload.kind & ~std::uint32_t{WITH_ECN});
  udp_ = kind == OF_UDP;
  if (!udp_ && kind != OF_TCP_IPV4 && kind != OF_TCP_IPV6) return false;
  if (offload.piece_bytes == 0 || !whole.frame.checksum_open) return false;
  const Frame& frame = whole.frame;
  ip_ = ETHERNET_SIZE;
  std::uint16_t eth_type = load_be16(frame.data + ADDRESS_BYTES);
  skip_vlan_tags(frame.data, frame.length, ip_, eth_type);
  transport_ = offload.checksum_start;
  headers_bytes_ = transport_ + (udp_ ? UDP_SIZE : TCP_SIZE);
  if (transport_ < ip_ || headers_bytes_ >= frame.length) return false;
  if (!udp_) {
    const std::uint32_t bytes = (std::uint32_t{frame.data[transport_ + 12]} >> 4U) * 4;
    if (bytes < TCP_SIZE) return false;
    headers_bytes_ = transport_ + bytes;
  }
  if (headers_bytes_ > MOST_HEADERS || headers_bytes_ >= frame.length) return false;
  // The header before must be that of the packet, and not that of a tunnel.
  const std::uint8_t protocol = udp_ ? PROTOCOL_UDP : PROTOCOL_TCP;
  Ipv4Header ipv4;
  Ipv6Header ipv6;
  const bool direct = eth_type == ETHERTYPE_IPV4
                          ? ipv4.parse(frame.data + ip_, frame.length - ip_) &&
                                ipv4.protocol == protocol && ip_ + ipv4.size == transport_
                          : eth_type == ETHERTYPE_IPV6 &&
                                ipv6.parse(frame.data + ip_, frame.length - ip_) &&
                                ipv6.protocol == protocol && ip_ + IPV6_SIZE == transport_;
  if (!direct) return false;
  whole_ = frame;
  piece_ = offload.piece_bytes;
  at_ = headers_bytes_;
  write_beginning();
  return true;
}

std::uint32_t CutFrame::piece_bytes() const noexcept {
  return std::min(piece_, whole_.length - at_);
}

void CutFrame::write_beginning() noexcept {
  std::uint8_t* const out = beginning_.data();
  std::memcpy(out, whole_.data, headers_bytes_);
  const std::uint32_t bytes = piece_bytes();
  const std::uint32_t offset = at_ - headers_bytes_;
  const std::uint32_t copied = std::min(bytes - 1, MOST_BEGINNING - headers_bytes_);
  std::memcpy(out + headers_bytes_, whole_.data + at_, copied);
  beginning_bytes_ = headers_bytes_ + copied;
  rest_ = {whole_.data + at_ + copied, bytes - copied};
  const auto ip_bytes = static_cast<std::uint16_t>(headers_bytes_ - ip_ + bytes);
  if (out[ip_] >> 4U == 4) {
    store_be16(out + ip_ + 2, ip_bytes);
    // As the kernel numbers them (inet_gso_segment).
    const std::uint32_t number = load_be16(out + ip_ + 4) + offset / piece_;
    store_be16(out + ip_ + 4, static_cast<std::uint16_t>(number));
    store_be16(out + ip_ + 10, 0);
    Checksum checksum;
    checksum.add(out + ip_, transport_ - ip_);
    store_be16(out + ip_ + 10, checksum.value());
  } else {
    store_be16(out + ip_ + 4, static_cast<std::uint16_t>(ip_bytes - IPV6_SIZE));
  }
  std::uint8_t* const transport = out + transport_;
  if (udp_) return store_be16(transport + 4, static_cast<std::uint16_t>(UDP_SIZE + bytes));
  store_be32(transport + 4, load_be32(transport + 4) + offset);
  // As tcp_gso_segment does: the first reports a reduced window, the last pushes and finishes.
  constexpr std::uint8_t FIRST_ONLY = 0x80;
  if (offset > 0) transport[TCP_FLAGS] &= static_cast<std::uint8_t>(~FIRST_ONLY);
  if (at_ + bytes < whole_.length)
    transport[TCP_FLAGS] &= static_cast<std::uint8_t>(~(TH_FIN | TH_PUSH));
}

Frame CutFrame::frame() noexcept {
  Frame frame = whole_;
  frame.data = beginning_.data();
  frame.length = headers_bytes_ + piece_bytes();
  frame.wire_length = frame.length;
  frame.rest = {&rest_, 1};
  return frame;
}

void CutFrame::next() noexcept {
  at_ += piece_bytes();
  if (active()) write_beginning();
}

void CutFrame::complete_checksum() noexcept {
  std::uint8_t* const out = beginning_.data();
  const bool ipv4 = out[ip_] >> 4U == 4;
  std::uint8_t* const field = out + transport_ + (udp_ ? UDP_CHECKSUM : TCP_CHECKSUM);
  store_be16(field, 0);
  const std::uint32_t bytes = headers_bytes_ - transport_ + piece_bytes();
  std::array<std::uint8_t, 8> rest{};
  store_be32(rest.data(), bytes);
  rest[7] = udp_ ? PROTOCOL_UDP : PROTOCOL_TCP;
  Checksum checksum;
  checksum.add(out + ip_ + (ipv4 ? 12 : 8), ipv4 ? 8 : 32);
  checksum.add(rest.data(), rest.size());
  checksum.add(out + transport_, beginning_bytes_ - transport_);
  checksum.add(rest_.iov_base, rest_.iov_len);
  store_be16(field, udp_ ? checksum.udp_value() : checksum.value());
}

}  // namespace daqiri::packet
