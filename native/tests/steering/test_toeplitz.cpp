#include <catch2/catch.hpp>
#include <set>

#include "frames.h"
#include "steering/classifier.h"
#include "steering/toeplitz.h"

using namespace daqiri;
using namespace daqiri::test;
using steering::PacketKey;
using steering::Program;
using steering::toeplitz;

namespace {

constexpr std::uint32_t ip(unsigned a, unsigned b, unsigned c, unsigned d) {
  return a << 24U | b << 16U | c << 8U | d;
}

struct Vector {
  std::uint32_t dst;
  std::uint16_t dst_port;
  std::uint32_t src;
  std::uint16_t src_port;
  std::uint32_t addresses;
  std::uint32_t with_ports;
};
// https://learn.microsoft.com/windows-hardware/drivers/network/verifying-the-rss-hash-calculation
constexpr Vector PUBLISHED[] = {
    {ip(161, 142, 100, 80), 1766, ip(66, 9, 149, 187), 2794, 0x323E8FC2, 0x51CCC178},
    {ip(65, 69, 140, 83), 4739, ip(199, 92, 111, 2), 14230, 0xD718262A, 0xC626B0EA},
    {ip(12, 22, 207, 184), 38024, ip(24, 19, 198, 95), 12898, 0xD2D0A5DE, 0x5C2B394A},
    {ip(209, 142, 163, 6), 2217, ip(38, 27, 205, 30), 48228, 0x82989176, 0xAFC7327F},
    {ip(202, 188, 127, 2), 1303, ip(153, 39, 163, 191), 44251, 0x5D1809C5, 0x10E828A2},
};

FlowConfig& add_rss_flow(InterfaceConfig& interface, std::vector<std::uint16_t> ids) {
  FlowConfig& flow = add_flow(interface, 1, ids.front());
  flow.action_.ids_ = std::move(ids);
  flow.actions_ = {flow.action_};
  return flow;
}

}  // namespace

TEST_CASE("the hash is that of the published vectors", "[steering]") {
  for (const Vector& v : PUBLISHED) {
    CHECK(toeplitz(v.src, v.dst, v.src_port, v.dst_port) == v.with_ports);
    CHECK(toeplitz(v.src, v.dst, 0, 0) == v.addresses);
  }
}

TEST_CASE("a flow of several queues chooses by the hash, in the order of its ids", "[steering]") {
  auto interface = interface_with_queues(4);
  add_rss_flow(interface, {3, 0, 2});
  const Program program(interface);
  constexpr std::uint16_t IDS[] = {3, 0, 2};
  for (const Vector& v : PUBLISHED) {
    const PacketKey key{true, false, v.src_port, v.dst_port, 100, v.src, v.dst};
    const auto verdict = program.classify({key});
    CHECK(verdict.matched);
    CHECK(verdict.flow == 1);
    CHECK(verdict.queue == IDS[v.with_ports % 512 % 3]);
  }
}

TEST_CASE("many tuples use all queues about evenly", "[steering]") {
  auto interface = interface_with_queues(5);
  add_rss_flow(interface, {0, 1, 2, 3, 4});
  const Program program(interface);
  std::vector<int> packets(5);
  for (std::uint16_t port = 0; port < 5000; ++port)
    ++packets[program.classify({PacketKey{true, false, port, 5000, 100, 1, 2}}).queue];
  for (const int each : packets) {
    CHECK(each > 700);
    CHECK(each < 1300);
  }
}

TEST_CASE("a flow by flex item is spread by addresses and ports, not by its word", "[steering]") {
  auto interface = interface_with_queues(4);
  interface.rx_.flex_items_.push_back({"item", 0, 0, 2000});
  FlowMatch& match = add_rss_flow(interface, {0, 1, 2, 3}).match_;
  match.type_ = FlowMatchType::FLEX_ITEM;
  const Program program(interface);
  std::set<std::uint16_t> of_words;
  std::set<std::uint16_t> of_ports;
  for (std::uint16_t i = 0; i < 64; ++i) {
    FrameFields fields;
    auto frame = make_frame(fields);
    put32(frame, 42, i);
    of_words.insert(program.classify(steering::PacketView::of_frame(frame.data(), 52)).queue);
    fields.udp_src = i;
    frame = make_frame(fields);
    of_ports.insert(program.classify(steering::PacketView::of_frame(frame.data(), 52)).queue);
  }
  CHECK(of_words.size() == 1);
  CHECK(of_ports.size() == 4);
}
