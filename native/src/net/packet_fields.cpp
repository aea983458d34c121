// Header fields of captured packets.
#include <algorithm>
#include <iterator>

#include "net/headers.h"
#include "net/link_layer.h"

namespace daqiri {

namespace {

/// Position of the EtherType in the header of a link type. Without header, the packet begins with
/// IP.
struct Link {
  std::uint32_t type;
  std::uint32_t header{0};
  std::uint32_t ether_type_at{0};
};
constexpr Link LINKS[] = {
    {LINKTYPE_ETHERNET, 14, 12},
    {LINKTYPE_RAW},
    {113, 16, 14},  // LINUX_SLL
    {228},          // IPV4
    {229},          // IPV6
    {276, 20, 0},   // LINUX_SLL2
};

const Link* find_link(std::uint32_t link_type) noexcept {
  const auto* found = std::find_if(std::begin(LINKS), std::end(LINKS),
                                   [=](const Link& link) { return link.type == link_type; });
  return found == std::end(LINKS) ? nullptr : found;
}

std::uint64_t load_mac(const std::uint8_t* at) noexcept {
  return std::uint64_t{load_be16(at)} << 32U | load_be32(at + 2);
}

/// Parses the headers of one packet, outermost first.
class Parser {
 public:
  Parser(const std::uint8_t* packet, std::uint32_t captured) noexcept
      : packet_(packet), end_(captured) {}

  PacketFields parse(std::uint32_t link_type) noexcept {
    if (const Link* known = find_link(link_type)) link(*known);
    if (fields_.eth_type == ETHERTYPE_IPV4) ipv4();
    if (fields_.eth_type == ETHERTYPE_IPV6) ipv6();
    fields_.payload_at = at_;
    fields_.payload_length = end_ - at_;
    return fields_;
  }

 private:
  [[nodiscard]] bool has(std::uint32_t bytes) const noexcept { return end_ - at_ >= bytes; }
  [[nodiscard]] const std::uint8_t* here() const noexcept { return packet_ + at_; }
  /// Ignore captured bytes after `length` bytes from `at`, such as padding.
  void end_after(std::uint32_t at, std::uint32_t length) noexcept {
    if (length < end_ - at) end_ = at + length;
  }

  /// If the next header is unknown, the EtherType remains 0 or that of a VLAN tag.
  void link(const Link& link) noexcept {
    if (!has(std::max(link.header, 1U))) return;
    if (link.header == 0) {
      const unsigned version = here()[0] >> 4U;
      if (version == 4) fields_.eth_type = ETHERTYPE_IPV4;
      if (version == 6) fields_.eth_type = ETHERTYPE_IPV6;
      return;
    }
    if (link.type == LINKTYPE_ETHERNET) {
      fields_.eth_dst = load_mac(here());
      fields_.eth_src = load_mac(here() + 6);
    }
    fields_.eth_type = load_be16(here() + link.ether_type_at);
    at_ += link.header;
    if (is_vlan_tag(fields_.eth_type) && has(VLAN_TAG_SIZE))
      fields_.vlan = load_be16(here()) & VLAN_ID;
    skip_vlan_tags(packet_, end_, at_, fields_.eth_type);
  }

  void ipv4() noexcept {
    Ipv4Header ip;
    if (!ip.parse(here(), end_ - at_)) return;
    fields_.ip_version = 4;
    fields_.ip_length = ip.length;
    fields_.ip_ttl = ip.time_to_live;
    fields_.ip_protocol = ip.protocol;
    fields_.ipv4_src = ip.source;
    fields_.ipv4_dst = ip.destination;
    // 0: the network card would have set it (segmentation offload).
    if (ip.length >= ip.size) end_after(at_, ip.length);
    at_ += ip.size;
    fragmented_ = ip.fragmented();
    if (ip.first_fragment()) transport();
  }

  void ipv6() noexcept {
    const std::uint8_t* begin = here();
    Ipv6Header ip;
    if (!ip.parse(begin, end_ - at_)) return;
    fields_.ip_version = 6;
    fields_.ip_length = IPV6_SIZE + ip.length;
    fields_.ip_ttl = ip.hop_limit;
    std::copy(begin + 8, begin + 24, fields_.ipv6_src.begin());
    std::copy(begin + 24, begin + 40, fields_.ipv6_dst.begin());
    if (ip.length != 0) end_after(at_, IPV6_SIZE + ip.length);
    fields_.ip_protocol = ip.protocol;
    at_ += ip.size;
    fragmented_ = ip.fragmented();
    if (ip.has_payload) transport();
  }

  void transport() noexcept {
    const std::uint8_t* header = here();
    if (fields_.ip_protocol == PROTOCOL_UDP && has(8)) {
      const std::uint16_t length = load_be16(header + 4);
      ports(header);
      if (!fragmented_) fields_.udp_length = length;
      if (length >= 8) end_after(at_, length);
      at_ += 8;
    } else if (fields_.ip_protocol == PROTOCOL_TCP && has(20)) {
      const std::uint32_t size = (header[12] >> 4U) * 4U;
      ports(header);
      fields_.tcp_seq = load_be32(header + 4);
      fields_.tcp_flags = load_be16(header + 12) & 0x0FFFU;
      at_ += std::clamp(size, 20U, end_ - at_);
    }
  }

  void ports(const std::uint8_t* header) noexcept {
    fields_.transport = fields_.ip_protocol;
    fields_.src_port = load_be16(header);
    fields_.dst_port = load_be16(header + 2);
  }

  const std::uint8_t* packet_;
  /// Never below at_.
  std::uint32_t end_;
  std::uint32_t at_{0};
  bool fragmented_{false};
  PacketFields fields_;
};

}  // namespace

bool has_fields(std::uint32_t link_type) noexcept { return find_link(link_type) != nullptr; }

PacketFields parse_packet(const std::uint8_t* packet, std::uint32_t captured,
                          std::uint32_t link_type) noexcept {
  return Parser(packet, captured).parse(link_type);
}

}  // namespace daqiri
