// Counters of flows on a loopback: all matching packets, including dropped ones.
#include <catch2/catch.hpp>

#include <thread>

#include "session/flow_counts.h"
#include "session/loopback_config.h"
#include "session/snapshot.h"

using namespace daqiri;
using namespace daqiri::test;

TEST_CASE("flows count what they match, and nothing else", "[session][flows]") {
  const auto session = Session::open(loopback_config());
  TxQueue& tx = session->tx_queue(0, 0);
  REQUIRE(send_frames(tx, 5000, 0, 30, 0, 0, 100));
  REQUIRE(send_frames(tx, 5001, 0, 20, 0, 0, 200));
  REQUIRE(send_frames(tx, 6000, 0, 10, 0, 0, 300));
  wait_received(session->rx_queue(0, 0), 40);
  wait_received(session->rx_queue(0, 1), 20);
  check_flow(*session, 0, 30, 3000);
  check_flow(*session, 1, 20, 4000);

  // Over the port, matched and unmatched packets add up to the packets of the queues.
  const SessionSnapshot snapshot = SessionSnapshot::of(*session);
  REQUIRE(snapshot.flows.size() == 2);
  CHECK(snapshot.flows[1].port == "port0");
  CHECK(snapshot.flows[1].flow == "flow1");
  CHECK(snapshot.flows[1].counters.packets == 20);
  CHECK(snapshot.rx[0].counters.received_bytes + snapshot.rx[1].counters.received_bytes ==
        3000 + 4000 + 10 * 300);
}

TEST_CASE("packets that alternate between flows of one queue are counted apart",
          "[session][flows]") {
  auto config = loopback_config();
  config.ifs_[0].rx_.flows_[1].action_.id_ = 0;
  config.ifs_[0].rx_.flows_[1].actions_.clear();
  const auto session = Session::open(config);
  REQUIRE(send_packets(session->tx_queue(0, 0), 300, 0, 0, 10'000'000'000, [](std::uint32_t i) {
    return udp_frame(static_cast<std::uint16_t>(5000 + i % 3), i, 100 + i % 3);
  }));
  wait_received(session->rx_queue(0, 0), 300);
  check_flow(*session, 0, 100, 100 * 100);
  check_flow(*session, 1, 100, 100 * 101);
}

TEST_CASE("flows count what is then dropped, and stay when the session is closed",
          "[session][flows]") {
  auto config = loopback_config(32, 0, 256);
  config.common_.loopback_drops_ = true;
  config.ifs_[0].rx_.flow_isolation_ = true;
  config.mrs_.at("tx_frames").buf_size_ = 4096;
  const auto session = Session::open(config);
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  // At most 256 of them find a buffer.
  REQUIRE(send_frames(tx, 5000, 0, 400));
  REQUIRE(tx.wait_idle(10'000'000'000));
  wait_received(rx, 400);
  CHECK(rx.counters().dropped_total() >= 400 - 256);
  check_flow(*session, 0, 400, 400 * 128);

  REQUIRE(send_frames(tx, 5000, 0, 10, 0, 0, 3000));
  REQUIRE(send_frames(tx, 6000, 0, 50));
  wait_received(rx, 460);
  CHECK(rx.counters().dropped[DropReason::TRUNCATED] == 10);
  CHECK(rx.counters().dropped[DropReason::FILTERED] == 50);
  check_flow(*session, 0, 410, 400 * 128 + 10 * 3000);
  check_flow(*session, 1, 0, 0);

  rx.request_flush();
  rx.set_drop_all(true);
  REQUIRE(send_frames(tx, 5000, 0, 5));
  wait_received(rx, 465);
  session->close();
  check_flow(*session, 0, 415, 405 * 128 + 10 * 3000);
  CHECK(session->latest()->flows.at(0).counters.packets == 415);
}

TEST_CASE("what waits for a slow receiver is counted once, also when the session closes",
          "[session][flows]") {
  auto config = loopback_config(32, 0, 256);
  config.rx_meta_buffers_ = 2;
  const auto session = Session::open(config);
  TxQueue& tx = session->tx_queue(0, 0);
  std::thread sender([&] { send_frames(tx, 5000, 0, 200); });
  sender.join();
  session->close();
  RxQueue& rx = session->rx_queue(0, 0);
  while (Burst* burst = rx.receive()) burst->release();
  const RxSnapshot counters = rx.counters();
  CHECK(counters.received == tx.counters().sent);
  check_flow(*session, 0, counters.received, counters.received_bytes);
}

TEST_CASE("senders on several threads are counted together", "[session][flows]") {
  auto config = loopback_config();
  TxQueueConfig other = config.ifs_[0].tx_.queues_[0];
  other.common_.name_ = "tx1";
  other.common_.id_ = 1;
  other.common_.cpu_core_ = "0";
  config.ifs_[0].tx_.queues_.push_back(other);
  const auto session = Session::open(config);
  std::thread second([&] { send_frames(session->tx_queue(0, 1), 5000, 0, 500); });
  const bool sent = send_frames(session->tx_queue(0, 0), 5000, 0, 500);
  second.join();
  REQUIRE(sent);
  wait_received(session->rx_queue(0, 0), 1000);
  check_flow(*session, 0, 1000, 1000 * 128);
}
