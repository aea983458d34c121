#include <catch2/catch.hpp>
#include <random>

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

/// The rules as documented, tried one by one.
Verdict match_naively(const InterfaceConfig& interface, const PacketKey& key) {
  const auto inside = [](const PortRange& range, std::uint16_t port) {
    return (range.lo == 0 && range.hi == 0) || (range.lo <= port && port <= range.hi);
  };
  const auto equal_or_any = [](std::uint32_t wanted, std::uint32_t found) {
    return wanted == 0 || wanted == found;
  };
  for (const FlowConfig& flow : interface.rx_.flows_) {
    const FlowMatch& m = flow.match_;
    if (key.ipv4_udp && inside(m.udp_src_, key.udp_src) && inside(m.udp_dst_, key.udp_dst) &&
        equal_or_any(m.ipv4_len_, key.ipv4_len) && equal_or_any(ntohl(m.ipv4_src_), key.ipv4_src) &&
        equal_or_any(ntohl(m.ipv4_dst_), key.ipv4_dst)) {
      return {true, flow.action_.id_, flow.id_};
    }
  }
  return {false, static_cast<std::uint16_t>(interface.rx_.queues_.front().common_.id_), 0};
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

TEST_CASE("random rules and packets: the program agrees with trying every rule", "[steering]") {
  std::mt19937 random(4711);
  const auto upto = [&random](std::uint32_t n) { return static_cast<std::uint16_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    auto interface = interface_with_queues(4);
    const int flows = upto(40);
    // Values from small sets, so that rules overlap and packets hit them.
    const auto range = [&]() -> PortRange {
      if (upto(3) == 0) return {};
      const std::uint16_t lo = upto(20);
      const auto hi = static_cast<std::uint16_t>(lo + upto(6));
      return upto(8) == 0 ? PortRange{static_cast<std::uint16_t>(65530 + upto(6)), 65535}
                          : PortRange{lo, hi};
    };
    for (int i = 0; i < flows; ++i) {
      FlowMatch& match = add_flow(interface, static_cast<FlowId>(i + 1), upto(4)).match_;
      match.udp_src_ = range();
      match.udp_dst_ = range();
      if (upto(3) == 0) match.ipv4_len_ = static_cast<std::uint16_t>(40 + upto(3));
      if (upto(4) == 0) match.ipv4_src_ = htonl(1U + upto(3));
      if (upto(4) == 0) match.ipv4_dst_ = htonl(1U + upto(3));
    }
    const Program program(interface);
    for (int packet = 0; packet < 300; ++packet) {
      const auto port = [&] {
        return static_cast<std::uint16_t>(upto(6) == 0 ? 65530 + upto(6) : upto(26));
      };
      FrameFields fields;
      fields.udp_src = port();
      fields.udp_dst = port();
      fields.payload = static_cast<std::uint16_t>(11 + upto(4));
      fields.src = 1U + upto(4);
      fields.dst = 1U + upto(4);
      if (upto(10) == 0) fields.protocol = 6;
      const auto frame = make_frame(fields);
      PacketKey key =
          key_of(fields.udp_src, fields.udp_dst, static_cast<std::uint16_t>(ipv4_length(fields)),
                 fields.src, fields.dst);
      key.ipv4_udp = fields.protocol == 17;
      const auto found = program.classify(
          PacketView::of_frame(frame.data(), static_cast<std::uint32_t>(frame.size())));
      INFO("round " << round << ", packet " << packet);
      REQUIRE(same(found, match_naively(interface, key)));
    }
  }
}
