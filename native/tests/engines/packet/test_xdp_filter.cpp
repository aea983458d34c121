// The frames that an XDP program selects when the kernel runs it: at least those that the
// classifier matches.
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <optional>
#include <random>

#include "daqiri/error.h"
#include "engines/packet/xdp_program.h"
#include "frames.h"
#include "steering/classifier.h"

using namespace daqiri;
using namespace daqiri::packet;
using namespace daqiri::test;

namespace {

/// Loads a program into the kernel; empty if this process may not.
std::optional<XdpProgram> load(const RxConfig& config) {
  NetworkInterface lo;
  lo.name = "lo";
  lo.index = 1;
  try {
    return XdpProgram(lo, XdpFilter(config), 1, XDP_TX);
  } catch (const Error& error) {
    if (error.status() != Status::NOT_SUPPORTED || geteuid() == 0) throw;
    WARN("not run: " << error.what());
    return {};
  }
}

/// Whether the program selects a frame. There is no socket, so it returns selected frames.
bool takes(const XdpProgram& program, const std::vector<std::uint8_t>& frame) {
  bpf_attr attributes{};
  attributes.test.prog_fd = static_cast<std::uint32_t>(program.fd());
  attributes.test.data_in = reinterpret_cast<std::uintptr_t>(frame.data());
  attributes.test.data_size_in = static_cast<std::uint32_t>(frame.size());
  attributes.test.repeat = 1;
  REQUIRE(syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attributes, sizeof attributes) == 0);
  REQUIRE((attributes.test.retval == XDP_TX || attributes.test.retval == XDP_PASS));
  return attributes.test.retval == XDP_TX;
}

RxConfig isolated(const std::vector<FlowMatch>& matches) {
  RxConfig config;
  config.flow_isolation_ = true;
  config.queues_.emplace_back();
  for (const FlowMatch& match : matches) {
    FlowConfig& flow = config.flows_.emplace_back();
    flow.id_ = static_cast<FlowId>(config.flows_.size());
    flow.match_ = match;
  }
  return config;
}

FlowMatch to_port(PortRange range) {
  FlowMatch match;
  match.udp_dst_ = range;
  return match;
}

std::vector<std::uint8_t> with_ports(std::uint16_t src, std::uint16_t dst) {
  FrameFields fields;
  fields.udp_src = src;
  fields.udp_dst = dst;
  return make_frame(fields);
}

}  // namespace

TEST_CASE("without isolation every frame is taken", "[packet][xdp]") {
  const auto program = load({});
  if (!program) return;
  CHECK(takes(*program, with_ports(1, 2)));
  CHECK(takes(*program, std::vector<std::uint8_t>(60, 0)));
}

TEST_CASE("what no flow matches stays with the kernel", "[packet][xdp]") {
  const auto program = load(isolated({to_port(5000), to_port({6000, 6010})}));
  if (!program) return;
  CHECK(takes(*program, with_ports(1, 5000)));
  CHECK(takes(*program, with_ports(1, 6000)));
  CHECK(takes(*program, with_ports(1, 6010)));
  CHECK_FALSE(takes(*program, with_ports(5000, 1)));
  CHECK_FALSE(takes(*program, with_ports(1, 4999)));
  CHECK_FALSE(takes(*program, with_ports(1, 5999)));
  CHECK_FALSE(takes(*program, with_ports(1, 6011)));
  CHECK_FALSE(takes(*program, tagged(with_ports(1, 5000), {0x8100})));
  FrameFields fields;
  fields.udp_dst = 5000;
  fields.fragment = 3;
  CHECK_FALSE(takes(*program, make_frame(fields)));
  fields.fragment = 0;
  fields.protocol = 6;
  CHECK_FALSE(takes(*program, make_frame(fields)));
  fields.protocol = 17;
  fields.header_words = 15;
  CHECK(takes(*program, make_frame(fields)));
  fields.ethertype = 0x0806;
  CHECK_FALSE(takes(*program, make_frame(fields)));
  CHECK_FALSE(takes(*program, ecpri_frame(0, 1)));
}

TEST_CASE("priority tags do not count, and IPv6 is taken by ports", "[packet][xdp]") {
  FlowMatch host = to_port(6000);
  host.ipv4_src_ = htonl(0x0A000001);
  FlowMatch length = to_port(7000);
  length.ipv4_len_ = 38;
  const auto program = load(isolated({to_port(5000), host, length}));
  if (!program) return;
  CHECK(takes(*program, tagged_with_ids(with_ports(1, 5000), {0})));
  CHECK(takes(*program, tagged_with_ids(with_ports(1, 5000), {0, 0, 0, 0})));
  CHECK_FALSE(takes(*program, tagged_with_ids(with_ports(1, 5000), {0, 1})));
  CHECK_FALSE(takes(*program, tagged_with_ids(with_ports(1, 4999), {0})));
  const auto over_ipv6 = [](std::uint16_t port, const std::vector<Ipv6Extension>& extensions = {}) {
    FrameFields fields;
    fields.udp_dst = port;
    return make_ipv6_frame(fields, extensions);
  };
  CHECK(takes(*program, over_ipv6(5000)));
  CHECK(takes(*program, tagged_with_ids(over_ipv6(5000), {0})));
  CHECK_FALSE(takes(*program, over_ipv6(4999)));
  CHECK_FALSE(takes(*program, over_ipv6(6000)));
  CHECK_FALSE(takes(*program, over_ipv6(7000)));
  CHECK(takes(*program, over_ipv6(5000, std::vector<Ipv6Extension>(8, Ipv6Extension{60}))));
  CHECK_FALSE(takes(*program, over_ipv6(5000, std::vector<Ipv6Extension>(9, Ipv6Extension{60}))));
  CHECK(takes(*program, over_ipv6(5000, {{0, 2}, {44, 0, 1}, {43}})));
  CHECK_FALSE(takes(*program, over_ipv6(5000, {{44, 0, 8}})));
  FrameFields tcp;
  tcp.udp_dst = 5000;
  tcp.protocol = 6;
  CHECK_FALSE(takes(*program, make_ipv6_frame(tcp)));
}

TEST_CASE("the kernel accepts the program for flows of all kinds", "[packet][xdp]") {
  RxConfig config = isolated(std::vector<FlowMatch>(5U * 32U));
  for (std::size_t i = 0; i < config.flows_.size(); ++i) {
    FlowConfig& flow = config.flows_[i];
    const std::size_t fields = i % 32;
    if ((fields & 1U) != 0) flow.match_.udp_src_ = 1;
    if ((fields & 2U) != 0) flow.match_.udp_dst_ = 2;
    if ((fields & 4U) != 0) flow.match_.ipv4_len_ = 38;
    if ((fields & 8U) != 0) flow.match_.ipv4_src_ = htonl(1);
    if ((fields & 16U) != 0) flow.match_.ipv4_dst_ = htonl(2);
    flow.actions_.resize(1 + i / 32);
    for (std::size_t tag = 0; tag < i / 32; ++tag) flow.actions_[tag].type_ = FlowType::VLAN_POP;
  }
  const auto program = load(config);
  if (!program) return;
  CHECK(takes(*program, tagged(with_ports(1, 2), std::vector<std::uint16_t>(4, 0x8100))));
}

TEST_CASE("fields of one flow hold together", "[packet][xdp]") {
  FlowMatch match = to_port(5000);
  match.udp_src_ = 4000;
  match.ipv4_len_ = 38;
  match.ipv4_src_ = htonl(0x0A000001);
  match.ipv4_dst_ = htonl(0x0A000002);
  const auto program = load(isolated({match}));
  if (!program) return;
  FrameFields good;
  good.udp_src = 4000;
  good.udp_dst = 5000;
  CHECK(takes(*program, make_frame(good)));
  const auto refused = [&](auto member, auto value) {
    FrameFields other = good;
    other.*member = static_cast<std::remove_reference_t<decltype(other.*member)>>(value);
    CHECK_FALSE(takes(*program, make_frame(other)));
  };
  refused(&FrameFields::udp_src, 4001);
  refused(&FrameFields::udp_dst, 5001);
  refused(&FrameFields::payload, 11);
  refused(&FrameFields::src, 0x0A000002);
  refused(&FrameFields::dst, 0x0A000001);
}

TEST_CASE("tags, eCPRI, tunnels and flows to come", "[packet][xdp]") {
  const auto frame = with_ports(1, 5000);
  RxConfig config = isolated({to_port(5000)});
  config.flows_[0].actions_.resize(2);
  config.flows_[0].actions_[0].type_ = FlowType::VLAN_POP;
  if (const auto program = load(config)) {
    CHECK_FALSE(takes(*program, frame));
    CHECK(takes(*program, tagged(frame, {0x88A8})));
    CHECK_FALSE(takes(*program, tagged(frame, {0x88A8, 0x8100})));
  }
  config.flows_[0].actions_[0].type_ = FlowType::TUNNEL_DECAP;
  config.flows_[0].actions_[0].tunnel_.type_ = TunnelType::VXLAN;
  if (const auto program = load(config)) {
    CHECK(takes(*program, with_ports(1, 4789)));
    CHECK_FALSE(takes(*program, frame));
  }
  config.flows_[0].actions_[0].tunnel_.type_ = TunnelType::NVGRE;
  if (const auto program = load(config)) {
    FrameFields gre;
    gre.protocol = 47;
    CHECK(takes(*program, make_frame(gre)));
    CHECK_FALSE(takes(*program, frame));
  }
  FlowMatch ecpri;
  ecpri.type_ = FlowMatchType::ECPRI;
  if (const auto program = load(isolated({ecpri}))) {
    CHECK(takes(*program, ecpri_frame(0, 1)));
    CHECK_FALSE(takes(*program, tagged(ecpri_frame(0, 1), {0x8100})));
    CHECK_FALSE(takes(*program, frame));
  }
  config = isolated({});
  config.dynamic_flow_capacity_ = 1;
  if (const auto program = load(config)) {
    CHECK(takes(*program, frame));
    CHECK(takes(*program, tagged(frame, {0x8100})));
    CHECK(takes(*program, ecpri_frame(0, 1)));
    FrameFields tcp;
    tcp.protocol = 6;
    CHECK_FALSE(takes(*program, make_frame(tcp)));
  }
}

TEST_CASE("no packet of a flow is left to the kernel", "[packet][xdp]") {
  std::mt19937 engine(1);
  const auto upto = [&](std::uint32_t n) { return static_cast<std::uint16_t>(engine() % n); };
  const auto range = [&] {
    const auto lo = static_cast<std::uint16_t>(1 + upto(20));
    return upto(3) == 0 ? PortRange() : PortRange{lo, static_cast<std::uint16_t>(lo + upto(4))};
  };
  std::size_t matched = 0;
  std::size_t left = 0;
  for (int round = 0; round < 50; ++round) {
    InterfaceConfig interface;
    std::vector<FlowMatch> matches(1U + upto(20));
    for (FlowMatch& match : matches) {
      if (upto(8) == 0) {
        match.type_ = FlowMatchType::ECPRI;
        continue;
      }
      if (upto(8) == 0) {
        match.type_ = FlowMatchType::FLEX_ITEM;
        match.flex_item_match_ = {0, 0xEEEEEEEE, 0xFFFF0000 & 0xEEEEEEEE};
        match.flex_item_match_.mask_ = UINT32_MAX;
        continue;
      }
      match.udp_src_ = range();
      match.udp_dst_ = range();
      if (upto(3) == 0) match.ipv4_len_ = static_cast<std::uint16_t>(60 + upto(3));
      if (upto(3) == 0) match.ipv4_src_ = htonl(1U + upto(3));
      if (upto(3) == 0) match.ipv4_dst_ = htonl(1U + upto(3));
    }
    interface.rx_ = isolated(matches);
    interface.rx_.flex_items_.push_back({});
    interface.rx_.flex_items_[0].udp_dst_port_ = 7;
    for (FlowConfig& flow : interface.rx_.flows_) {
      flow.actions_.resize(1U + upto(3));
      for (std::size_t i = 0; i + 1 < flow.actions_.size(); ++i)
        flow.actions_[i].type_ = FlowType::VLAN_POP;
    }
    const steering::Program classifier(interface);
    const auto program = load(interface.rx_);
    if (!program) return;
    for (int i = 0; i < 500; ++i) {
      FrameFields fields;
      fields.udp_src = upto(26);
      fields.udp_dst = upto(26);
      fields.payload = static_cast<std::uint16_t>(31 + upto(4));
      fields.src = 1U + upto(4);
      fields.dst = 1U + upto(4);
      fields.header_words = static_cast<std::uint8_t>(5 + upto(2));
      constexpr std::uint8_t KINDS[] = {0, 43, 44, 60};
      std::vector<Ipv6Extension> extensions(upto(3) == 0 ? upto(10) : 0U);
      for (Ipv6Extension& extension : extensions) {
        extension = {KINDS[upto(4)], static_cast<std::uint8_t>(upto(2)),
                     static_cast<std::uint16_t>(upto(8) == 0 ? 8 + upto(2) : upto(2))};
      }
      std::vector<std::uint8_t> frame = upto(8) == 0   ? ecpri_frame(0, 1)
                                        : upto(3) == 0 ? make_ipv6_frame(fields, extensions)
                                                       : make_frame(fields);
      std::vector<std::uint16_t> ids(upto(4));
      for (std::uint16_t& id : ids) id = static_cast<std::uint16_t>(upto(2) * 100);
      frame = tagged_with_ids(frame, ids);
      // Truncate the frame, or corrupt a byte.
      if (upto(6) == 0) frame.resize(std::max<std::size_t>(14, upto(70)));
      if (upto(6) == 0) frame[12 + upto(static_cast<std::uint32_t>(frame.size() - 12))] = 0x45;
      const auto size = static_cast<std::uint32_t>(frame.size());
      const bool matches_flow =
          classifier.classify(steering::PacketView::of_frame(frame.data(), size)).matched;
      const bool taken = takes(*program, frame);
      CHECK((!matches_flow || taken));
      matched += matches_flow ? 1 : 0;
      left += taken ? 0 : 1;
    }
  }
  CHECK(matched > 1000);
  CHECK(left > 1000);
}
