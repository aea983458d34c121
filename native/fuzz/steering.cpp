// Bytes of a packet: steered by rules of every kind and parsed as every link type, without reading
// beyond the end.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "net/headers.h"
#include "require.h"
#include "steering/classifier.h"

using namespace daqiri;
using fuzz::require;

namespace {

constexpr std::uint16_t FLEX_PORT = 5000;

FlowMatch flex(int item, std::uint32_t value, std::uint32_t mask) {
  FlowMatch match;
  match.type_ = FlowMatchType::FLEX_ITEM;
  match.flex_item_match_ = {item, value, mask};
  return match;
}

FlowMatch ecpri(const EcpriMatch& message) {
  FlowMatch match;
  match.type_ = FlowMatchType::ECPRI;
  match.ecpri_match_ = message;
  return match;
}

std::vector<FlowMatch> matches_of_all_kinds() {
  FlowMatch all_fields;
  all_fields.udp_src_ = {4000, 4000};
  all_fields.udp_dst_ = {5000, 5009};
  all_fields.ipv4_len_ = 128;
  all_fields.ipv4_src_ = htonl(0xC0000201U);
  all_fields.ipv4_dst_ = htonl(0xC0000202U);
  FlowMatch port;
  port.udp_dst_ = {5000, 5000};
  FlowMatch edges;
  edges.udp_dst_ = {65535, 65535};
  edges.udp_src_ = {0, 1};
  FlowMatch length;
  length.ipv4_len_ = 60;
  FlowMatch address;
  address.ipv4_dst_ = htonl(INADDR_LOOPBACK);
  FlowMatch low;
  low.udp_dst_ = {0, 1023};
  FlowMatch both;
  both.udp_src_ = {1, 2000};
  both.udp_dst_ = {1000, 3000};
  return {all_fields,
          flex(0, 0x12340000, 0xFFFF0000),
          flex(1, 7, UINT32_MAX),
          ecpri({0, true, 17, true}),
          ecpri({2, true, 0, false}),
          port,
          edges,
          length,
          address,
          low,
          both,
          flex(0, 0, 1),
          ecpri({})};
}

/// Flows of all kinds on one interface, each with and without vlan_pop; every third uses RSS.
InterfaceConfig rules() {
  InterfaceConfig interface;
  interface.name_ = "port0";
  for (int id = 0; id < 3; ++id) interface.rx_.queues_.emplace_back().common_.id_ = id;
  interface.rx_.flex_items_ = {{"first", 0, 0, FLEX_PORT}, {"last", 1, 28, FLEX_PORT + 1}};
  FlowAction pop;
  pop.type_ = FlowType::VLAN_POP;
  FlowId id = 0;
  for (const FlowMatch& match : matches_of_all_kinds()) {
    for (std::size_t tags = 0; tags < 3; ++tags) {
      FlowConfig& flow = interface.rx_.flows_.emplace_back();
      flow.name_ = "flow" + std::to_string(++id);
      flow.id_ = id;
      flow.match_ = match;
      flow.action_.id_ = static_cast<std::uint16_t>(id % 3);
      if (id % 3 == 0) flow.action_.ids_ = {2, 0, 1};
      flow.actions_.assign(tags, pop);
      flow.actions_.push_back(flow.action_);
    }
  }
  return interface;
}

bool matches(const RxConfig& rx, const FlowConfig& flow, const steering::PacketKey& key,
             std::span<const std::uint8_t> bytes) {
  if (key.tags.vlans + 1U != flow.actions_.size()) return false;
  const FlowMatch& match = flow.match_;
  if (match.type_ == FlowMatchType::ECPRI) {
    const EcpriMatch& wanted = match.ecpri_match_;
    return key.ecpri && (!wanted.match_msg_type_ || wanted.msg_type_ == key.ecpri_type) &&
           (!wanted.match_id_ || (key.ecpri_has_id && wanted.id_ == key.ecpri_id));
  }
  if (!key.udp()) return false;
  if (match.type_ == FlowMatchType::FLEX_ITEM) {
    const auto& [id, value, mask] = match.flex_item_match_;
    const FlexItemConfig& item = rx.flex_items_[static_cast<std::size_t>(id)];
    if (key.udp_dst != item.udp_dst_port_) return false;
    const auto payload = bytes.first(key.payload_end).subspan(key.payload_at);
    return item.offset_ + 4U <= payload.size() &&
           (load_be32(&payload[item.offset_]) & mask) == value;
  }
  return match.udp_src_.contains(key.udp_src) && match.udp_dst_.contains(key.udp_dst) &&
         (match.ipv4_len_ == 0 || match.ipv4_len_ == key.ipv4_len) &&
         (match.ipv4_src_ == 0 || ntohl(match.ipv4_src_) == key.ipv4_src) &&
         (match.ipv4_dst_ == 0 || ntohl(match.ipv4_dst_) == key.ipv4_dst);
}

/// Header fields are within the packet and agree with the steering result.
void check_fields(const std::uint8_t* data, std::uint32_t length, const steering::PacketKey& key) {
  for (const std::uint32_t link_type : {1, 101, 113, 228, 229, 276, 147}) {
    const PacketFields fields = parse_packet(data, length, link_type);
    require(fields.payload_at <= length && fields.payload_length <= length - fields.payload_at,
            "the payload lies in the packet");
    require(has_fields(link_type) || fields.payload_at == 0, "an unknown link is all payload");
    if (link_type != 1 || !key.udp()) continue;
    require(fields.transport == 17 && fields.src_port == key.udp_src &&
                fields.dst_port == key.udp_dst && fields.ip_version == (key.ipv4_udp ? 4 : 6) &&
                (key.ipv6_udp || fields.ip_length == key.ipv4_len) &&
                fields.ipv4_src == key.ipv4_src && fields.ipv4_dst == key.ipv4_dst,
            "steering and fields read the same headers");
  }
}

bool same(const steering::Verdict& a, const steering::Verdict& b) {
  return a.matched == b.matched && a.queue == b.queue && a.flow == b.flow;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const InterfaceConfig interface = rules();
  static const steering::Program program(interface);
  const auto length = static_cast<std::uint32_t>(size);
  const steering::PacketKey key = steering::parse_frame(data, length);
  require(!key.ipv4_udp || size >= 42, "a key comes from whole headers");
  require(!key.ipv4_udp || key.ipv4_len >= 28, "IPv4 counts its header and UDP's");

  require(!key.ipv6_udp || (size >= 62 && key.ipv4_len == 0), "IPv6 has no IPv4 fields");
  require(!key.udp() || (key.payload_at <= key.payload_end && key.payload_end <= size),
          "the payload lies in the packet");
  require(!key.ecpri || size >= 18, "an eCPRI message has its common header");
  require(key.ecpri + key.ipv4_udp + key.ipv6_udp <= 1, "a packet is of one kind");

  check_fields(data, length, key);

  const auto packet = steering::PacketView::of_frame(data, length);
  const steering::Verdict found = program.classify(packet);
  const auto& flows = interface.rx_.flows_;
  const auto first = std::ranges::find_if(flows, [&](const FlowConfig& flow) {
    return matches(interface.rx_, flow, key, packet.bytes);
  });
  require(found.matched == (first != flows.end()), "a packet matches where some rule does");
  if (found.matched) {
    require(found.flow == first->id_ && found.position == first - flows.begin(),
            "the first rule of the file that matches wins");
    require(first->action_.ids_.empty() ? found.queue == first->action_.id_ : found.queue < 3,
            "a packet goes to a queue of its rule");
  }
  require(same(found, program.classify(packet)), "the same packet goes the same way");
  // Rules do not read behind these bytes.
  const auto seen = std::min(length, steering::MOST_KEY_BYTES);
  require(same(found, program.classify(steering::PacketView::of_frame(data, seen))),
          "the beginning of a packet decides");
  return 0;
}
