// Bytes of a packet: steered by every kind of rule, and taken apart as every kind of link, without
// a look beyond their end.
#include <cstdint>
#include <cstring>

#include "net/headers.h"
#include "require.h"
#include "steering/classifier.h"

using namespace daqiri;
using fuzz::require;

namespace {

FlowConfig flow(FlowId id, const FlowMatch& match) {
  FlowConfig config;
  config.name_ = "flow" + std::to_string(id);
  config.id_ = id;
  config.match_ = match;
  config.action_.id_ = static_cast<std::uint16_t>(id % 3);
  config.actions_ = {config.action_};
  return config;
}

InterfaceConfig rules() {
  InterfaceConfig interface;
  interface.name_ = "port0";
  for (int id = 0; id < 3; ++id) {
    RxQueueConfig queue;
    queue.common_.id_ = id;
    interface.rx_.queues_.push_back(queue);
  }
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
  FlowId id = 0;
  for (const FlowMatch& match : {all_fields, port, edges, length, address, low})
    interface.rx_.flows_.push_back(flow(++id, match));
  return interface;
}

bool matches(const FlowMatch& match, const steering::PacketKey& key) {
  return key.ipv4_udp && match.udp_src_.contains(key.udp_src) &&
         match.udp_dst_.contains(key.udp_dst) &&
         (match.ipv4_len_ == 0 || match.ipv4_len_ == key.ipv4_len) &&
         (match.ipv4_src_ == 0 || ntohl(match.ipv4_src_) == key.ipv4_src) &&
         (match.ipv4_dst_ == 0 || ntohl(match.ipv4_dst_) == key.ipv4_dst);
}

/// Header fields lie within the packet, and agree with what steering saw.
void check_fields(const std::uint8_t* data, std::uint32_t length, const steering::PacketKey& key) {
  for (const std::uint32_t link_type : {1, 101, 113, 228, 229, 276, 147}) {
    const PacketFields fields = parse_packet(data, length, link_type);
    require(fields.payload_at <= length && fields.payload_length <= length - fields.payload_at,
            "the payload lies in the packet");
    require(has_fields(link_type) || fields.payload_at == 0, "an unknown link is all payload");
    if (link_type != 1 || !key.ipv4_udp) continue;
    require(fields.transport == 17 && fields.src_port == key.udp_src &&
                fields.dst_port == key.udp_dst && fields.ip_length == key.ipv4_len &&
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

  check_fields(data, length, key);

  steering::Verdict expected;
  for (const FlowConfig& rule : interface.rx_.flows_) {
    if (!matches(rule.match_, key)) continue;
    expected = {true, rule.action_.id_, rule.id_};
    break;
  }
  const auto packet = steering::PacketView::of_frame(data, length);
  const steering::Verdict found = program.classify(packet);
  require(same(found, expected), "the first rule of the file that matches wins");
  require(same(found, program.classify(packet)), "the same packet goes the same way");
  return 0;
}
