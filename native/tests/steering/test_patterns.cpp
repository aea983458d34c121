// Patterns of flows, for cards that steer: what they compare, and that they match what the program
// matches.
#include <catch2/catch.hpp>

#include <algorithm>
#include <random>

#include "frames.h"
#include "net/headers.h"
#include "net/transforms.h"
#include "steering/classifier.h"
#include "steering/patterns.h"

using namespace daqiri;
using namespace daqiri::test;
using steering::FlowPatterns;
using steering::Header;
using steering::HeaderMatch;
using steering::Pattern;
using steering::patterns_of;

namespace {

using Bytes = std::vector<std::uint8_t>;

/// A card that reads the headers of a frame as a pattern names them.
class Card {
 public:
  explicit Card(const Bytes& frame) : frame_(frame) {}

  bool accepts(const Pattern& pattern) {
    return std::ranges::all_of(pattern, [&](const HeaderMatch& match) {
      const std::size_t begin = at_;
      return read(match.header) && equals(match, begin);
    });
  }

 private:
  std::uint16_t word(std::size_t at) const { return load_be16(&frame_[at]); }
  bool has(std::size_t size) const { return frame_.size() - at_ >= size; }
  bool equals(const HeaderMatch& match, std::size_t begin) const {
    for (std::size_t i = 0; i < match.mask.size(); ++i) {
      if (match.mask[i] == 0) continue;
      if (begin + i >= frame_.size() || (frame_[begin + i] & match.mask[i]) != match.value[i])
        return false;
    }
    return true;
  }
  bool read(Header header) {
    switch (header) {
      case Header::ETHERNET:
        if (!expects_frame_ || !has(14)) return false;
        return follow(14, word(at_ + 12));
      case Header::VLAN:
        if (type_ != 0x8100 && type_ != 0x88A8 && type_ != 0x9100) return false;
        return has(4) && follow(4, word(at_ + 2));
      case Header::IPV4:
        if (type_ != 0x0800 || !has(20) || (word(at_ + 6) & 0x3FFF) != 0) return false;
        protocol_ = frame_[at_ + 9];
        return follow(4U * (frame_[at_] & 0xFU), 0);
      case Header::IPV6:
        if (type_ != 0x86DD || !has(40)) return false;
        protocol_ = frame_[at_ + 6];
        return follow(40, 0);
      case Header::UDP:
        if (protocol_ != 17 || !has(8)) return false;
        vxlan_ = word(at_ + 2) == 4789;
        return follow(8, 0);
      case Header::VXLAN:
        if (!vxlan_ || !has(8)) return false;
        return follow(8, 0x6558);
      case Header::NVGRE:
        if (protocol_ != 47 || !has(8) || word(at_) != 0x2000) return false;
        return follow(8, word(at_ + 2));
      case Header::GRE: {
        if (protocol_ != 47 || !has(4)) return false;
        std::size_t size = 4;
        for (const std::uint16_t field : {0x8000, 0x2000, 0x1000})
          size += (word(at_) & field) != 0 ? 4 : 0;
        return follow(size, word(at_ + 2));
      }
      case Header::ECPRI:
        return type_ == 0xAEFE && has(4);
    }
    return false;
  }
  bool follow(std::size_t size, std::uint16_t type) {
    at_ += size;
    type_ = type;
    expects_frame_ = type == 0x6558;
    return at_ <= frame_.size();
  }

  const Bytes& frame_;
  std::size_t at_{0};
  std::uint16_t type_{0};
  std::uint8_t protocol_{0};
  bool vxlan_{false};
  bool expects_frame_{true};
};

bool accepts(const FlowPatterns& patterns, const Bytes& frame) {
  return std::ranges::any_of(patterns.any,
                             [&](const Pattern& each) { return Card(frame).accepts(each); });
}

bool program_matches(const FlowConfig& flow, const Bytes& frame) {
  InterfaceConfig interface = interface_with_queues(2);
  interface.rx_.flows_ = {flow};
  const auto verdict = steering::Program(interface).classify(
      steering::PacketView::of_frame(frame.data(), static_cast<std::uint32_t>(frame.size())));
  return verdict.matched && !verdict.malformed;
}

/// Few values, so that packets hit flows.
class RandomFlows {
 public:
  explicit RandomFlows(unsigned seed) : engine_(seed) {}

  std::uint16_t upto(std::uint32_t n) { return static_cast<std::uint16_t>(engine_() % n); }
  bool one_in(std::uint32_t n) { return upto(n) == 0; }

  FlowConfig flow() {
    InterfaceConfig interface;
    std::vector<FlowAction> actions(upto(3), action_of(FlowType::VLAN_POP));
    if (one_in(2)) {
      actions.push_back(action_of(FlowType::TUNNEL_DECAP, tunnel()));
      actions.insert(actions.end(), one_in(3) ? 1 : 0, action_of(FlowType::VLAN_POP));
    }
    FlowConfig made = add_flow(interface, 1, 1, actions);
    FlowMatch& match = made.match_;
    if (one_in(5)) {
      match.type_ = FlowMatchType::ECPRI;
      EcpriMatch& ecpri = match.ecpri_match_;
      ecpri.match_msg_type_ = !one_in(3);
      ecpri.match_id_ = ecpri.match_msg_type_ && one_in(2);
      ecpri.msg_type_ = static_cast<std::uint8_t>(upto(4));
      ecpri.id_ = upto(2);
      return made;
    }
    match.udp_src_ = range();
    match.udp_dst_ = range();
    if (one_in(4)) match.ipv4_len_ = static_cast<std::uint16_t>(38 + upto(2));
    if (one_in(4)) match.ipv4_src_ = htonl(1U + upto(2));
    if (one_in(4)) match.ipv4_dst_ = htonl(1U + upto(2));
    return made;
  }

  Bytes packet() {
    Bytes frame = tagged_with_ids(plain(), tags());
    if (one_in(2)) return frame;
    OuterFields outer;
    outer.type = type();
    outer.udp_src = static_cast<std::uint16_t>(50000 + upto(2));
    outer.network = 77U + upto(2);
    outer.flow_id = static_cast<std::uint8_t>(upto(2));
    outer.header_words = static_cast<std::uint8_t>(5 + upto(2));
    outer.src += upto(2);
    outer.dst += upto(2);
    if (outer.type == TunnelType::GRE && one_in(2)) {
      outer.protocol = load_be16(&frame[12]);
      frame.erase(frame.begin(), frame.begin() + 14);
    }
    frame = in_tunnel(frame, outer);
    if (one_in(4)) frame[0] = 2;
    if (one_in(4)) frame[11] = 7;
    return tagged_with_ids(frame, tags());
  }

 private:
  PortRange range() {
    if (one_in(3)) return {};
    if (one_in(8)) return {0, 65535};
    const auto first = static_cast<std::uint16_t>(1 + upto(2));
    return {first, static_cast<std::uint16_t>(first + (one_in(6) ? 1 : 0))};
  }
  TunnelType type() {
    constexpr TunnelType TYPES[] = {TunnelType::VXLAN, TunnelType::GRE, TunnelType::NVGRE};
    return TYPES[upto(3)];
  }
  TunnelConfig tunnel() {
    TunnelConfig made = tunnel_of(type());
    for (std::string* address :
         {&made.outer_eth_dst_, &made.outer_eth_src_, &made.outer_ipv4_src_, &made.outer_ipv4_dst_})
      if (one_in(2)) address->clear();
    if (one_in(3)) made.outer_udp_src_ = 50000;
    if (one_in(8)) made.outer_udp_dst_ = 4790;
    if (one_in(2)) made.flow_id_ = 1;
    constexpr std::uint16_t PROTOCOLS[] = {0x6558, 0x0800, 0x86DD};
    made.gre_protocol_ = PROTOCOLS[upto(3)];
    return made;
  }
  Bytes plain() {
    if (one_in(5)) {
      const auto kind = static_cast<std::uint8_t>(upto(5));
      Bytes frame = ecpri_frame(kind, upto(2));
      // Generic data has an id of 32 bits.
      if (kind == 3) put32(frame, 18, upto(2));
      return frame;
    }
    FrameFields fields;
    fields.udp_src = static_cast<std::uint16_t>(1 + upto(3));
    fields.udp_dst = static_cast<std::uint16_t>(1 + upto(3));
    fields.payload = static_cast<std::uint16_t>(10 + upto(2));
    fields.src = 1U + upto(2);
    fields.dst = 1U + upto(2);
    fields.header_words = static_cast<std::uint8_t>(5 + upto(2));
    if (one_in(10)) fields.protocol = 6;
    return one_in(3) ? make_ipv6_frame(fields) : make_frame(fields);
  }
  std::vector<std::uint16_t> tags() {
    std::vector<std::uint16_t> ids(one_in(2) ? 0U : upto(3));
    for (std::uint16_t& id : ids) id = static_cast<std::uint16_t>(1 + upto(4095));
    return ids;
  }

  std::mt19937 engine_;
};

FlowConfig flow_of(const FlowMatch& match) {
  FlowConfig flow;
  flow.match_ = match;
  return flow;
}

}  // namespace

TEST_CASE("a pattern has the headers of its flow, and their values", "[steering]") {
  FlowMatch match;
  match.udp_dst_ = 5001;
  const auto both = patterns_of(flow_of(match)).any;
  REQUIRE(both.size() == 2);
  HeaderMatch udp{Header::UDP};
  udp.value = {0, 0, 0x13, 0x89};
  udp.mask = {0, 0, 0xFF, 0xFF};
  CHECK(both[0] == Pattern{{Header::ETHERNET}, {Header::IPV4}, udp});
  CHECK(both[1] == Pattern{{Header::ETHERNET}, {Header::IPV6}, udp});
  match.ipv4_src_ = inet_addr("10.0.0.1");
  const auto one = patterns_of(flow_of(match)).any;
  REQUIRE(one.size() == 1);
  CHECK(one[0][1].value ==
        std::array<std::uint8_t, 20>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1});
}

TEST_CASE("what patterns cannot express has a reason", "[steering]") {
  FlowMatch match;
  TunnelConfig tunnel = tunnel_of(TunnelType::VXLAN);
  std::string reason;
  SECTION("ports") {
    match.udp_src_ = {1000, 1010};
    reason = "udp_src is a range of ports (1000-1010)";
  }
  SECTION("flex items") {
    match.type_ = FlowMatchType::FLEX_ITEM;
    reason = "no flex items";
  }
  SECTION("VXLAN on another port") {
    tunnel.outer_udp_dst_ = 8472;
    reason = "outer_udp_dst is 8472";
  }
  SECTION("a tag in GRE without Ethernet") {
    tunnel.type_ = TunnelType::GRE;
    tunnel.gre_protocol_ = 0x0800;
    reason = "GRE without Ethernet";
  }
  InterfaceConfig interface;
  FlowConfig& flow = add_flow(
      interface, 1, 0, {action_of(FlowType::TUNNEL_DECAP, tunnel), action_of(FlowType::VLAN_POP)});
  flow.match_ = match;
  const FlowPatterns patterns = patterns_of(flow);
  CHECK(patterns.any.empty());
  CHECK_THAT(patterns.reason, Catch::Contains(reason));
}

TEST_CASE("patterns of random flows match the packets that the program matches", "[steering]") {
  const auto seed = GENERATE(range(1U, 4U));
  RandomFlows random(seed);
  int expressed = 0;
  int hits = 0;
  for (int i = 0; i < 1500; ++i) {
    const FlowConfig flow = random.flow();
    const FlowPatterns patterns = patterns_of(flow);
    CHECK(patterns.any.empty() != patterns.reason.empty());
    if (patterns.any.empty()) continue;
    ++expressed;
    for (int n = 0; n < 60; ++n) {
      const Bytes frame = random.packet();
      const bool matched = program_matches(flow, frame);
      hits += matched ? 1 : 0;
      INFO("seed " << seed << ", flow " << i << ", packet " << n);
      REQUIRE(accepts(patterns, frame) == matched);
    }
  }
  CHECK(expressed > 700);
  CHECK(hits > 500);
}

TEST_CASE("patterns miss frames that cards do not read", "[steering]") {
  const FlowConfig flow = flow_of({});
  FrameFields fragment;
  fragment.fragment = 0x2000;
  const Bytes frames[] = {make_frame(fragment), tagged_with_ids(make_frame({}), {0}),
                          make_ipv6_frame({}, {{}})};
  for (const Bytes& frame : frames) {
    CHECK(program_matches(flow, frame));
    CHECK_FALSE(accepts(patterns_of(flow), frame));
  }
}
