// Flows of UDP sockets that match a field of the payload.
#include <netinet/udp.h>

#include <catch2/catch.hpp>

#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint16_t FIELD_AT = 32;
constexpr std::uint32_t FIELD_FLOWS = 3;

/// Flow m + 1 has datagrams whose word at FIELD_AT has module m in bits 8 to 15.
NetworkConfig by_module(std::uint16_t port, bool apart) {
  NetworkConfig config = udp_server("127.0.0.1", port, {.timeout_us = 1000});
  config.ifs_[0].tx_ = {};
  config.mrs_.erase("tx_data");
  RxConfig& rx = config.ifs_[0].rx_;
  rx.flow_isolation_ = true;
  FlexItemConfig item;
  item.name_ = "module";
  item.id_ = 1;
  item.offset_ = FIELD_AT;
  item.udp_dst_port_ = port;
  rx.flex_items_.push_back(item);
  rx.queues_[0].common_.cpu_core_ = "0";
  rx.queues_.push_back(rx.queues_[0]);
  rx.queues_[1].common_.name_ = "rx1";
  rx.queues_[1].common_.id_ = 1;
  if (apart) rx.queues_[1].common_.cpu_core_ = "1";
  for (std::uint32_t m = 0; m < FIELD_FLOWS; ++m) {
    FlowConfig flow;
    flow.name_ = "module" + std::to_string(m);
    flow.id_ = m + 1;
    flow.match_.type_ = FlowMatchType::FLEX_ITEM;
    flow.match_.flex_item_match_ = {1, m << 8U, 0xFF00};
    flow.action_.id_ = static_cast<std::uint16_t>(m % 2);
    flow.actions_ = {flow.action_};
    rx.flows_.push_back(flow);
  }
  return config;
}

Bytes field_datagram(std::uint32_t number, std::uint8_t module, std::size_t length) {
  Bytes bytes = numbered(number, length);
  if (length > FIELD_AT + 2U) bytes[FIELD_AT + 2U] = module;
  return bytes;
}

/// Sends datagrams of equal length in one system call.
bool send_segments(const PlainSocket& socket, std::uint16_t port, const Bytes& bytes, int segment) {
  setsockopt(socket.fd(), SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
  return socket.send("127.0.0.1", port, bytes);
}

}  // namespace

TEST_CASE("datagrams are steered by a field of their payload", "[socket]") {
  const bool rows = GENERATE(false, true);
  const bool apart = GENERATE(false, true);
  const std::size_t buf_size = GENERATE(std::size_t{16}, std::size_t{2048});
  constexpr std::uint32_t COUNT = 600;
  constexpr std::size_t LENGTH = 100;
  constexpr std::uint32_t ROW = 20;
  const std::uint16_t port = free_port("127.0.0.1");
  NetworkConfig config = by_module(port, apart);
  // Packets that are split within the field's word, too.
  if (buf_size == 16) {
    config.mrs_.at("rx_data").buf_size_ = 34;
    MemoryRegionConfig rest = config.mrs_.at("rx_data");
    rest.name_ = "rest";
    rest.buf_size_ = 512;
    config.mrs_.emplace("rest", rest);
    for (RxQueueConfig& queue : config.ifs_[0].rx_.queues_)
      queue.common_.mrs_ = {"rx_data", "rest"};
  }
  const auto session = Session::open(config);
  const PlainSocket peer("127.0.0.1");
  // Module 3 has no flow.
  const auto module_of = [](std::uint32_t number) {
    return static_cast<std::uint8_t>(number * number / 3 % 4);
  };
  std::uint32_t wanted[2]{};
  std::uint32_t filtered = 0;
  Bytes row;
  for (std::uint32_t i = 0; i < COUNT; ++i) {
    const std::uint8_t module = module_of(i);
    ++(module == FIELD_FLOWS ? filtered : wanted[module % 2]);
    const Bytes one = field_datagram(i, module, LENGTH);
    if (!rows) REQUIRE(peer.send("127.0.0.1", port, one));
    row.insert(row.end(), one.begin(), one.end());
    if (row.size() < ROW * LENGTH) continue;
    if (rows) REQUIRE(send_segments(peer, port, row, LENGTH));
    row.clear();
  }
  // A datagram without the whole field matches nothing.
  const PlainSocket other("127.0.0.1");
  REQUIRE(other.send("127.0.0.1", port, Bytes(FIELD_AT + 3, 0)));
  for (int q = 0; q < 2; ++q) {
    const auto got = receive_packets(session->rx_queue(0, q), wanted[q]);
    REQUIRE(got.size() == wanted[q]);
    std::size_t wrong = 0;
    for (const Received& each : got) {
      const std::uint32_t number = number_of(each.bytes);
      const std::uint8_t module = module_of(number);
      if (each.flow != module + 1U || each.bytes != field_datagram(number, module, LENGTH)) ++wrong;
    }
    CHECK(wrong == 0);
  }
  const RxSnapshot first = counters_after(session->rx_queue(0, 0), wanted[0] + filtered + 1);
  CHECK(dropped(first, DropReason::FILTERED) == filtered + 1);
  for (int q = 0; q < 2; ++q) {
    const RxSnapshot counters = session->rx_queue(0, q).counters();
    CHECK(balanced(counters));
    CHECK(counters.delivered == wanted[q]);
  }
}
