// Flows that remove VLAN tags and tunnels from their packets.
#include <catch2/catch.hpp>
#include <random>

#include "frames.h"
#include "steering/classifier.h"
#include "steering/toeplitz.h"

using namespace daqiri;
using namespace daqiri::test;
using steering::PacketView;
using steering::Program;
using steering::Verdict;

namespace {

using Bytes = std::vector<std::uint8_t>;

Verdict verdict_of(const InterfaceConfig& interface, const Bytes& frame) {
  return Program(interface).classify(
      PacketView::of_frame(frame.data(), static_cast<std::uint32_t>(frame.size())));
}

Bytes delivered(Bytes frame, const Verdict& verdict) {
  if (!verdict.transformed) return frame;
  const std::uint8_t* begin = take_off(frame.data(), verdict.remains);
  return {begin, begin + verdict.remains.length()};
}

FlowAction decap(TunnelType type) {
  TunnelConfig tunnel;
  tunnel.type_ = type;
  tunnel.vni_ = tunnel.tni_ = 77;
  tunnel.gre_protocol_ = 0x6558;
  return action_of(FlowType::TUNNEL_DECAP, tunnel);
}
const FlowAction POP = action_of(FlowType::VLAN_POP);

Bytes udp_to(std::uint16_t port) {
  FrameFields fields;
  fields.udp_dst = port;
  return make_frame(fields);
}

}  // namespace

TEST_CASE("a flow with a tunnel sees what is in it", "[steering]") {
  const auto type = GENERATE(TunnelType::VXLAN, TunnelType::GRE, TunnelType::NVGRE);
  auto interface = interface_with_queues(3);
  add_flow(interface, 1, 1, {decap(type)}).match_.udp_dst_ = 5000;
  add_flow(interface, 2, 2, {decap(type)}).match_.udp_dst_ = 5001;
  OuterFields outer;
  outer.type = type;
  for (std::uint16_t id = 1; id < 3; ++id) {
    const Bytes inner = udp_to(static_cast<std::uint16_t>(4999 + id));
    const Verdict verdict = verdict_of(interface, in_tunnel(inner, outer));
    CHECK(verdict.flow == id);
    CHECK(verdict.queue == id);
    CHECK(delivered(in_tunnel(inner, outer), verdict) == inner);
  }
  // Another packet in the tunnel, the packet without the tunnel, and with a VLAN tag.
  for (const Bytes& frame : {in_tunnel(udp_to(5002), outer), udp_to(5000),
                             tagged(in_tunnel(udp_to(5000), outer), {0x8100}),
                             in_tunnel(tagged(udp_to(5000), {0x8100}), outer)}) {
    const Verdict verdict = verdict_of(interface, frame);
    CHECK_FALSE(verdict.matched);
    CHECK_FALSE(verdict.transformed);
    CHECK(verdict.queue == 0);
  }
}

TEST_CASE("outer fields that are given are compared", "[steering]") {
  OuterFields outer;
  outer.type = GENERATE(TunnelType::VXLAN, TunnelType::NVGRE);
  outer.flow_id = 9;
  const Bytes frame = in_tunnel(udp_to(5000), outer);
  TunnelConfig tunnel = decap(outer.type).tunnel_;
  bool takes = true;
  SECTION("all of them") {
    tunnel = tunnel_of(outer.type);
    tunnel.outer_udp_src_ = 50000;
    tunnel.flow_id_ = 9;
  }
  SECTION("network") {
    tunnel.vni_ = tunnel.tni_ = 78;
    takes = false;
  }
  SECTION("eth_src") {
    tunnel.outer_eth_src_ = "02:00:00:00:00:01";
    takes = false;
  }
  SECTION("eth_dst") {
    tunnel.outer_eth_dst_ = "02:00:00:00:00:01";
    takes = false;
  }
  SECTION("ipv4_src") {
    tunnel.outer_ipv4_src_ = "192.168.0.3";
    takes = false;
  }
  SECTION("ipv4_dst") {
    tunnel.outer_ipv4_dst_ = "192.168.0.3";
    takes = false;
  }
  SECTION("udp_src, flow_id") {
    tunnel.outer_udp_src_ = 50001;
    tunnel.flow_id_ = 8;
    takes = false;
  }
  SECTION("time to live and type of service are not") {
    tunnel.outer_ipv4_ttl_ = 3;
    tunnel.outer_ipv4_tos_ = 3;
  }
  auto interface = interface_with_queues(2);
  add_flow(interface, 1, 1, {action_of(FlowType::TUNNEL_DECAP, tunnel)});
  CHECK(verdict_of(interface, frame).matched == takes);
}

TEST_CASE("VXLAN of another port is none", "[steering]") {
  auto interface = interface_with_queues(2);
  add_flow(interface, 1, 1, {decap(TunnelType::VXLAN)});
  OuterFields outer;
  outer.udp_dst = 4790;
  CHECK_FALSE(verdict_of(interface, in_tunnel(udp_to(1), outer)).matched);
}

TEST_CASE("NVGRE is GRE of Ethernet frames, too: the first flow has it", "[steering]") {
  auto interface = interface_with_queues(3);
  const bool gre_first = GENERATE(false, true);
  add_flow(interface, 1, 1, {decap(gre_first ? TunnelType::GRE : TunnelType::NVGRE)});
  add_flow(interface, 2, 2, {decap(gre_first ? TunnelType::NVGRE : TunnelType::GRE)});
  OuterFields outer;
  outer.type = TunnelType::NVGRE;
  CHECK(verdict_of(interface, in_tunnel(udp_to(1), outer)).flow == 1);
  outer.type = TunnelType::GRE;
  CHECK(verdict_of(interface, in_tunnel(udp_to(1), outer)).flow == (gre_first ? 1 : 2));
}

TEST_CASE("tags come off in front of the tunnel and behind it", "[steering]") {
  auto interface = interface_with_queues(2);
  add_flow(interface, 1, 1, {POP, decap(TunnelType::VXLAN), POP, POP});
  const Bytes inner = udp_to(5000);
  const Bytes frame = tagged(in_tunnel(tagged(inner, {0x88A8, 0x8100})), {0x8100});
  const Verdict verdict = verdict_of(interface, frame);
  CHECK(verdict.flow == 1);
  CHECK(delivered(frame, verdict) == inner);
  CHECK_FALSE(verdict_of(interface, in_tunnel(tagged(inner, {0x88A8, 0x8100}))).matched);
}

TEST_CASE("what is popped is what the flow says", "[steering]") {
  auto interface = interface_with_queues(2);
  add_flow(interface, 1, 1, {POP});
  add_flow(interface, 2, 1, {POP, POP});
  const Bytes inner = udp_to(5000);
  for (const std::size_t tags : {1U, 2U}) {
    const Bytes frame = tagged(inner, std::vector<std::uint16_t>(tags, 0x8100));
    const Verdict verdict = verdict_of(interface, frame);
    CHECK(verdict.flow == tags);
    CHECK(delivered(frame, verdict) == inner);
  }
}

TEST_CASE("the first flow of the file wins, whether it looks into tunnels or not", "[steering]") {
  auto interface = interface_with_queues(3);
  const bool plain_first = GENERATE(false, true);
  const auto add_plain = [&] { add_flow(interface, 1, 1).match_.udp_dst_ = 4789; };
  if (plain_first) add_plain();
  add_flow(interface, 2, 2, {decap(TunnelType::VXLAN)}).match_.udp_dst_ = 5000;
  if (!plain_first) add_plain();
  const Bytes frame = in_tunnel(udp_to(5000));
  const Verdict verdict = verdict_of(interface, frame);
  CHECK(verdict.flow == (plain_first ? 1 : 2));
  CHECK(verdict.transformed == !plain_first);
  CHECK(verdict_of(interface, in_tunnel(udp_to(5001))).flow == 1);

  OuterFields fragment;
  fragment.fragment = 0x2000;
  const Verdict damaged = verdict_of(interface, in_tunnel(udp_to(5000), fragment));
  CHECK(damaged.malformed == !plain_first);
  CHECK(damaged.flow == (plain_first ? 1 : 2));
  CHECK_FALSE(damaged.transformed);
}

TEST_CASE("what cannot be taken out of its tunnel is malformed", "[steering]") {
  auto interface = interface_with_queues(2);
  add_flow(interface, 1, 1, {decap(TunnelType::VXLAN)}).match_.udp_dst_ = 5000;
  OuterFields outer;
  outer.udp_length = -100;
  const Verdict verdict = verdict_of(interface, in_tunnel(udp_to(1), outer));
  CHECK(verdict.matched);
  CHECK(verdict.malformed);
  CHECK(verdict.queue == 1);
  // A packet of another tunnel.
  outer.network = 78;
  CHECK_FALSE(verdict_of(interface, in_tunnel(udp_to(1), outer)).malformed);
}

TEST_CASE("RSS spreads by what is in the tunnel", "[steering]") {
  auto interface = interface_with_queues(4);
  FlowConfig& flow = add_flow(interface, 1, 0, {decap(TunnelType::VXLAN)});
  flow.action_.ids_ = flow.actions_.back().ids_ = {0, 1, 2, 3};
  for (std::uint16_t port = 1; port < 50; ++port) {
    FrameFields fields;
    fields.udp_src = port;
    const auto hash = steering::toeplitz(fields.src, fields.dst, port, fields.udp_dst);
    CHECK(verdict_of(interface, in_tunnel(make_frame(fields))).queue == hash % 4);
  }
}

TEST_CASE("a flow whose packets an earlier one of its tunnel takes is found", "[steering]") {
  auto interface = interface_with_queues(1);
  add_flow(interface, 1, 0, {decap(TunnelType::VXLAN)}).match_.udp_dst_ = {5000, 5009};
  add_flow(interface, 2, 0, {decap(TunnelType::GRE)}).match_.udp_dst_ = 5001;
  add_flow(interface, 3, 0, {decap(TunnelType::VXLAN), POP}).match_.udp_dst_ = 5001;
  CHECK(steering::find_unreachable(interface.rx_).empty());
  add_flow(interface, 4, 0, {decap(TunnelType::VXLAN)}).match_.udp_dst_ = 5001;
  const auto found = steering::find_unreachable(interface.rx_);
  REQUIRE(found.size() == 1);
  CHECK(found[0].flow == 3);
  CHECK(found[0].taken_by == 0);
}

TEST_CASE("many tunnels agree with trying each", "[steering]") {
  std::mt19937 random(3);
  auto interface = interface_with_queues(4);
  const auto upto = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  for (FlowId id = 1; id <= 300; ++id) {
    TunnelConfig tunnel = decap(static_cast<TunnelType>(1 + upto(3))).tunnel_;
    tunnel.vni_ = tunnel.tni_ = upto(40);
    if (upto(2) == 0) tunnel.outer_ipv4_dst_ = "192.168.0." + std::to_string(upto(3));
    FlowConfig& flow = add_flow(interface, id, static_cast<std::uint16_t>(upto(4)),
                                {action_of(FlowType::TUNNEL_DECAP, tunnel)});
    if (upto(2) == 0) flow.match_.udp_dst_ = static_cast<std::uint16_t>(5000 + upto(4));
  }
  const Program program(interface);
  int hits = 0;
  for (int i = 0; i < 5000; ++i) {
    OuterFields outer;
    outer.type = static_cast<TunnelType>(1 + upto(3));
    outer.network = upto(42);
    outer.dst = 0xC0A80000U + upto(4);
    const auto port = static_cast<std::uint16_t>(5000 + upto(4));
    const Bytes frame = in_tunnel(udp_to(port), outer);
    const auto& flows = interface.rx_.flows_;
    const auto first = std::ranges::find_if(flows, [&](const FlowConfig& flow) {
      const TunnelConfig& tunnel = flow.actions_[0].tunnel_;
      const bool gre = tunnel.type_ == TunnelType::GRE && outer.type != TunnelType::VXLAN;
      return (gre || (tunnel.type_ == outer.type && tunnel.vni_ == outer.network)) &&
             (tunnel.outer_ipv4_dst_.empty() ||
              tunnel.outer_ipv4_dst_ == "192.168.0." + std::to_string(outer.dst & 0xFFU)) &&
             flow.match_.udp_dst_.contains(port);
    });
    const Verdict verdict = program.classify(
        PacketView::of_frame(frame.data(), static_cast<std::uint32_t>(frame.size())));
    REQUIRE(verdict.matched == (first != flows.end()));
    if (!verdict.matched) continue;
    ++hits;
    REQUIRE(verdict.flow == first->id_);
    REQUIRE(delivered(frame, verdict) == udp_to(port));
  }
  CHECK(hits > 1000);
}
