#include <catch2/catch.hpp>

#include "frames.h"
#include "steering/classifier.h"

using namespace daqiri;
using namespace daqiri::test;
using steering::PacketKey;
using steering::PacketView;
using steering::Program;
using steering::Verdict;

namespace {

PacketKey key_of(std::uint16_t src, std::uint16_t dst, std::uint16_t length = 100,
                 std::uint32_t ipv4_src = 1, std::uint32_t ipv4_dst = 2) {
  return {true, false, src, dst, length, ipv4_src, ipv4_dst};
}

bool same(const Verdict& a, const Verdict& b) {
  return a.matched == b.matched && a.queue == b.queue && a.flow == b.flow;
}

}  // namespace

TEST_CASE("without flows every packet goes to the first queue with flow id 0", "[steering]") {
  const Program program(interface_with_queues(2, 7));
  const auto verdict = program.classify({key_of(1, 2)});
  CHECK_FALSE(verdict.matched);
  CHECK(verdict.queue == 7);
  CHECK(verdict.flow == 0);
}

TEST_CASE("each field of a rule decides on its own", "[steering]") {
  auto interface = interface_with_queues(2);
  FlowMatch& match = add_flow(interface, 9, 1).match_;
  PacketKey hit = key_of(100, 200, 300, 400, 500);
  PacketKey miss = hit;
  SECTION("udp_src") {
    match.udp_src_ = {100, 100};
    miss.udp_src = 101;
  }
  SECTION("udp_dst") {
    match.udp_dst_ = {200, 200};
    miss.udp_dst = 201;
  }
  SECTION("ipv4_len") {
    match.ipv4_len_ = 300;
    miss.ipv4_len = 301;
  }
  SECTION("ipv4_src") {
    match.ipv4_src_ = htonl(400);
    miss.ipv4_src = 401;
  }
  SECTION("ipv4_dst") {
    match.ipv4_dst_ = htonl(500);
    miss.ipv4_dst = 501;
  }
  const Program program(interface);
  CHECK(same(program.classify({hit}), {true, 1, 9}));
  CHECK(same(program.classify({miss}), {false, 0, 0}));
  hit.ipv4_udp = false;
  CHECK(same(program.classify({hit}), {false, 0, 0}));
}

TEST_CASE("ranges include both ends", "[steering]") {
  auto interface = interface_with_queues(1);
  add_flow(interface, 1, 0).match_.udp_dst_ = {1000, 1010};
  add_flow(interface, 2, 0).match_.udp_dst_ = {65535, 65535};
  add_flow(interface, 3, 0).match_.udp_src_ = {0, 5};
  const Program program(interface);
  CHECK(program.classify({key_of(9, 999)}).flow == 0);
  CHECK(program.classify({key_of(9, 1000)}).flow == 1);
  CHECK(program.classify({key_of(9, 1010)}).flow == 1);
  CHECK(program.classify({key_of(9, 1011)}).flow == 0);
  CHECK(program.classify({key_of(9, 65535)}).flow == 2);
  CHECK(program.classify({key_of(0, 0)}).flow == 3);
  CHECK(program.classify({key_of(5, 0)}).flow == 3);
  CHECK(program.classify({key_of(6, 0)}).flow == 0);
}

TEST_CASE("the first match in file order wins", "[steering]") {
  auto interface = interface_with_queues(3);
  add_flow(interface, 1, 0).match_.udp_dst_ = {1000, 2000};
  add_flow(interface, 2, 1).match_.udp_dst_ = {1500, 1500};
  add_flow(interface, 3, 2);
  const Program program(interface);
  CHECK(program.classify({key_of(1, 1500)}).flow == 1);
  CHECK(program.classify({key_of(1, 999)}).flow == 3);
}

TEST_CASE("a flow with id 0 steers and is told as no flow", "[steering]") {
  auto interface = interface_with_queues(2);
  add_flow(interface, 0, 1);
  const auto verdict = Program(interface).classify({key_of(1, 2)});
  CHECK(verdict.matched);
  CHECK(verdict.queue == 1);
  CHECK(verdict.flow == 0);
}

TEST_CASE("a flow sees frames with as many tags as it takes off", "[steering]") {
  auto interface = interface_with_queues(4);
  FlowAction pop;
  pop.type_ = FlowType::VLAN_POP;
  for (std::uint16_t tags = 0; tags < 3; ++tags) {
    FlowConfig& flow = add_flow(interface, tags + 1U, tags);
    flow.match_.udp_dst_ = 2000;
    flow.actions_.insert(flow.actions_.begin(), tags, pop);
  }
  const Program program(interface);
  for (const unsigned tags : {0U, 1U, 2U, 3U}) {
    const auto frame = tagged(make_frame({}), std::vector<std::uint16_t>(tags, 0x8100));
    const auto verdict = program.classify(
        PacketView::of_frame(frame.data(), static_cast<std::uint32_t>(frame.size())));
    CHECK(verdict.flow == (tags < 3 ? tags + 1 : 0));
  }
}

TEST_CASE("a flex item is a word of the payload of one port", "[steering]") {
  auto interface = interface_with_queues(2);
  interface.rx_.flex_items_.push_back({"item", 5, 8, 2000});
  FlowMatch& match = add_flow(interface, 1, 1).match_;
  match.type_ = FlowMatchType::FLEX_ITEM;
  match.flex_item_match_ = {5, 0x1234, 0xFFFF};
  const Program program(interface);
  FrameFields fields;
  fields.payload = 12;
  auto frame = make_frame(fields);
  const auto flow_of = [&](std::size_t length) {
    return program.classify(PacketView::of_frame(frame.data(), static_cast<std::uint32_t>(length)))
        .flow;
  };
  put32(frame, 42 + 8, 0xABCD1234);
  CHECK(flow_of(frame.size()) == 1);
  CHECK(flow_of(frame.size() - 1) == 0);
  put32(frame, 42 + 8, 0xABCD1235);
  CHECK(flow_of(frame.size()) == 0);
  put32(frame, 42 + 8, 0xABCD1234);
  put16(frame, 36, 2001);
  CHECK(flow_of(frame.size()) == 0);
  put16(frame, 36, 2000);
  // The word is after the IPv4 length: it is padding.
  put16(frame, 16, 20 + 8 + 11);
  CHECK(flow_of(frame.size()) == 0);
}

TEST_CASE("a value with bits outside of its mask matches nothing", "[steering]") {
  auto interface = interface_with_queues(2);
  interface.rx_.flex_items_.push_back({"item", 0, 0, 2000});
  FlowMatch& match = add_flow(interface, 1, 1).match_;
  match.type_ = FlowMatchType::FLEX_ITEM;
  match.flex_item_match_ = {0, 0x100, 0xFF};
  const Program program(interface);
  for (const std::uint32_t word : {0U, 0x100U}) {
    auto frame = make_frame({});
    put32(frame, 42, word);
    const auto length = static_cast<std::uint32_t>(frame.size());
    CHECK(program.classify(PacketView::of_frame(frame.data(), length)).flow == 0);
  }
}

TEST_CASE("eCPRI flows match all messages, those of a type, or those of an id", "[steering]") {
  auto interface = interface_with_queues(1);
  const auto add = [&](FlowId flow, const EcpriMatch& ecpri) {
    FlowMatch& match = add_flow(interface, flow, 0).match_;
    match.type_ = FlowMatchType::ECPRI;
    match.ecpri_match_ = ecpri;
  };
  add(1, {0, true, 7, true});
  add(2, {0, true, 0, true});
  add(3, {2, true, 0, false});
  add(4, {});
  const Program program(interface);
  const auto flow_of = [&](const std::vector<std::uint8_t>& frame) {
    return program
        .classify(PacketView::of_frame(frame.data(), static_cast<std::uint32_t>(frame.size())))
        .flow;
  };
  CHECK(flow_of(ecpri_frame(0, 7)) == 1);
  CHECK(flow_of(ecpri_frame(0, 0)) == 2);
  // Without an id, it does not match id 0.
  CHECK(flow_of(ecpri_frame(0, 0, 0)) == 4);
  CHECK(flow_of(ecpri_frame(2, 7)) == 3);
  CHECK(flow_of(ecpri_frame(1, 7)) == 4);
  CHECK(flow_of(make_frame({})) == 0);
}

TEST_CASE("a flow whose packets an earlier one takes is found, with the first of those",
          "[steering]") {
  auto interface = interface_with_queues(2);
  const auto add = [&](PortRange dst, PortRange src = {}) {
    FlowMatch& match = add_flow(interface, 1, 0).match_;
    match.udp_dst_ = dst;
    match.udp_src_ = src;
  };
  add({1000, 1010});
  add({1005, 1005});  // 1: within 0
  add({1005, 1011});  // partly
  add({2000, 2000}, {7, 7});
  add({2000, 2000});
  add({2000, 2000}, {8, 9});  // 5: within 4
  add({1000, 1010});          // 6: the same as 0
  add({});
  add({3000, 3000});  // 8: within 7
  interface.rx_.flows_[7].match_.ipv4_len_ = 100;
  const auto found = steering::find_unreachable(interface.rx_);
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (const auto& [flow, taken_by] : found) pairs.emplace_back(flow, taken_by);
  CHECK(pairs == std::vector<std::pair<std::size_t, std::size_t>>{{1, 0}, {5, 4}, {6, 0}});
  interface.rx_.flows_[7].match_.ipv4_len_ = 0;
  CHECK(steering::find_unreachable(interface.rx_).size() == 4);
}

TEST_CASE("flows of different tags do not hide each other", "[steering]") {
  auto interface = interface_with_queues(1);
  add_flow(interface, 1, 0);
  FlowConfig& tagged_flow = add_flow(interface, 2, 0);
  FlowAction pop;
  pop.type_ = FlowType::VLAN_POP;
  tagged_flow.actions_.insert(tagged_flow.actions_.begin(), pop);
  CHECK(steering::find_unreachable(interface.rx_).empty());
}
