// Packets through virtual devices of DPDK.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>

#include "engines/dpdk/dpdk_module.h"
#include "engines/dpdk/memory_device.h"
#include "engines/dpdk/other_process.h"
#include "frames.h"
#include "session/flow_counts.h"
#include "session/loopback_config.h"
#include "session/single_packets.h"
#include "timing/clock.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr const char* OF_A_CARD = "packets of a device of DPDK have fates of their own";

using Bytes = std::vector<std::uint8_t>;

NetworkConfig ring_config() {
  NetworkConfig config = loopback_config();
  use_dpdk(config, {"net_ring0"});
  return config;
}

/// For queues that are received from later.
NetworkConfig config_with_many_bursts() {
  NetworkConfig config = ring_config();
  config.rx_meta_buffers_ = 4096;
  return config;
}

/// Packets of a queue in the order of their arrival, with their flows; waits for `count`. They
/// arrive from `since` on, CLOCK_REALTIME ns.
std::vector<std::pair<Bytes, FlowId>> receive_all(RxQueue& rx, std::size_t count,
                                                  std::uint64_t since = 0) {
  std::vector<std::pair<Bytes, FlowId>> found;
  while (found.size() < count) {
    Burst* const burst = next_burst(rx);
    const auto* const times = burst->timestamps;
    CHECK(std::is_sorted(times, times + burst->num_packets()));
    CHECK((times[0] >= since && times[burst->num_packets() - 1] <= realtime_ns()));
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
      const auto* const at = static_cast<const std::uint8_t*>(burst->pkts[0][i]);
      found.emplace_back(Bytes(at, at + burst->pkt_lens[0][i]), burst->flow_ids[i]);
    }
    burst->release();
  }
  return found;
}

/// What must become of the packets to one UDP port: of a flow, or of none.
struct Fate {
  std::uint16_t udp_port;
  FlowId flow;
  int queue;
  bool filtered;
};

/// A section for each way. Returns whether packets of no flow are filtered.
bool steer_in_each_way(NetworkConfig& config) {
  SECTION("others go to the first queue") {}
  SECTION("others are filtered") { config.ifs_[0].rx_.flow_isolation_ = true; }
  SECTION("queues have cores of their own") {
    // The ring of one transmit queue is read by the first.
    config.ifs_[0].rx_.queues_[1].common_.cpu_core_ = "0";
  }
  return config.ifs_[0].rx_.flow_isolation_;
}

/// Sends packets of flows and lengths in any order.
void check_fates() {
  NetworkConfig config = ring_config();
  config.mrs_.at("rx_frames").buf_size_ = 512;
  const bool isolated = steer_in_each_way(config);
  const std::array<Fate, 3> fates{Fate{5000, 10, 0, false}, Fate{5001, 11, 1, false},
                                  Fate{7000, 0, 0, isolated}};
  // The length in the header of IPv4 is always the same, so that long packets of a flow look like
  // its others.
  std::mt19937 random(36);
  std::vector<Bytes> packets;
  std::array<std::vector<std::pair<Bytes, FlowId>>, 2> wanted;
  std::array<FlowSnapshot, 2> counts;
  std::array<std::uint64_t, 2> filtered{}, truncated{}, received{};
  while (packets.size() < 1000) {
    const Fate& fate = fates[random() % fates.size()];
    for (auto left = 1 + random() % 6; left > 0; --left) {
      Bytes packet = udp_frame(fate.udp_port, static_cast<std::uint32_t>(packets.size()));
      const bool has_tag = random() % 8 == 0;
      if (has_tag) packet = tagged(packet, {0x8100});
      packet.resize(std::array{41U, 128U, 200U, 512U, 513U, 1500U}[random() % 6], 0x5A);
      // With a tag, or without the rest of its headers, it is as those of no flow.
      const Fate& its = has_tag || packet.size() < 42 ? fates.back() : fate;
      const auto queue = static_cast<std::size_t>(its.queue);
      if (its.flow != 0) {
        counts[queue].packets += 1;
        counts[queue].bytes += packet.size();
      }
      ++received[queue];
      if (its.filtered)
        ++filtered[queue];
      else if (packet.size() > 512)
        ++truncated[queue];
      else
        wanted[queue].emplace_back(packet, its.flow);
      packets.push_back(std::move(packet));
    }
  }
  const auto session = Session::open(config);
  const std::uint64_t since = realtime_ns();
  REQUIRE(send_packets(session->tx_queue(0, 0), static_cast<std::uint32_t>(packets.size()), 0, 0,
                       PATIENCE_NS, [&](std::uint32_t i) { return packets[i]; }));
  for (int queue = 0; queue < 2; ++queue) {
    INFO(queue);
    const auto at = static_cast<std::size_t>(queue);
    RxQueue& rx = session->rx_queue(0, queue);
    CHECK(receive_all(rx, wanted[at].size(), since) == wanted[at]);
    wait_received(rx, received[at]);
    auto dropped = rx.counters().dropped;
    CHECK(dropped[DropReason::TRUNCATED] == truncated[at]);
    CHECK(dropped[DropReason::FILTERED] == filtered[at]);
    check_flow(*session, at, counts[at].packets, counts[at].bytes);
  }
  finish(*session);
}

/// Splits packets of a queue after 20 bytes.
void split(NetworkConfig& config, CommonQueueConfig& queue) {
  const std::string name = queue.mrs_[0] + "_headers";
  add_region(config, name, queue.mrs_[0], 20);
  queue.mrs_ = {name, queue.mrs_[0]};
}

}  // namespace

TEST_CASE("flows steer packets of a device, and count them", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  NetworkConfig config = ring_config();
  const bool isolated = steer_in_each_way(config);
  const auto session = Session::open(config);
  for (const auto& [port, queue] : {std::pair{5000, 0}, {5001, 1}}) {
    REQUIRE(send_frames(session->tx_queue(0, 0), static_cast<std::uint16_t>(port), 0, 1));
    const auto [bytes, flow] = receive(*session, queue);
    CHECK(bytes == udp_frame(static_cast<std::uint16_t>(port), 0));
    CHECK(flow == static_cast<FlowId>(10 + queue));
    CHECK(session->port(0).steering.counts(static_cast<std::size_t>(queue)).packets == 1);
  }
  REQUIRE(send_frames(session->tx_queue(0, 0), 7000, 3, 1));
  if (isolated) {
    CHECK(dropped(session->rx_queue(0, 0), DropReason::FILTERED) == 1);
  } else {
    CHECK(receive(*session, 0) == std::pair{udp_frame(7000, 3), FlowId{0}});
  }
  finish(*session);
}

TEST_CASE("transmit flows put headers on and receive flows take them off", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  NetworkConfig config = ring_config();
  const auto type = GENERATE(TunnelType::VXLAN, TunnelType::GRE, TunnelType::NVGRE);
  InterfaceConfig& port = config.ifs_[0];
  port.rx_.flows_.clear();
  const auto tunnel = [&](FlowType action) { return action_of(action, tunnel_of(type)); };
  const FlowAction pop = action_of(FlowType::VLAN_POP);
  add_flow(port, 1, 1, {pop, tunnel(FlowType::TUNNEL_DECAP), pop});
  FlowConfig& out = port.tx_.flows_.emplace_back();
  out.name_ = "out";
  out.id_ = 2;
  out.actions_ = {push_of(5), tunnel(FlowType::TUNNEL_ENCAP), push_of(6)};
  out.action_ = out.actions_.back();
  std::vector<std::uint32_t> cuts{0};
  SECTION("whole packets") {}
  SECTION("segments") {
    split(config, port.tx_.queues_[0].common_);
    for (RxQueueConfig& queue : port.rx_.queues_) split(config, queue.common_);
    cuts = {0, 1, 12, 13, 14, 20};
  }
  SECTION("segments of one queue") { split(config, port.rx_.queues_[1].common_); }
  const auto session = Session::open(config);
  for (const std::uint32_t cut : cuts) {
    for (const int payload : {0, 10, 1400}) {
      FrameFields fields;
      fields.payload = static_cast<std::uint16_t>(payload);
      const Bytes packet = make_frame(fields);
      send(*session, packet, cut);
      CHECK(receive(*session, 1) == std::pair{packet, FlowId{1}});
    }
  }
  finish(*session);
}

TEST_CASE("packets that do not fit are counted as truncated", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  NetworkConfig config = ring_config();
  config.mrs_.at("rx_frames").buf_size_ = 512;
  const auto session = Session::open(config);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 3, 0, 0, 513));
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 3, 1, 0, 0, 512));
  CHECK(receive(*session, 0).first == udp_frame(5000, 3, 512));
  CHECK(dropped(session->rx_queue(0, 0), DropReason::TRUNCATED) == 3);
  finish(*session);
}

TEST_CASE("each packet of a burst has its own fate, in whatever order they come",
          "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  check_fates();
}

TEST_CASE(OF_A_CARD, "[.]") {
  const MemoryDevice card({.pieces = 1});
  check_fates();
  CHECK(card.missed() == 0);
}

TEST_CASE("each packet of a card has its own fate, too", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(OF_A_CARD) == 0);
}

TEST_CASE("packets in one piece and in several are of one flow", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  NetworkConfig config = ring_config();
  split(config, config.ifs_[0].tx_.queues_[0].common_);
  const auto session = Session::open(config);
  constexpr std::uint32_t COUNT = 60;
  TxQueue& tx = session->tx_queue(0, 0);
  Burst* burst = nullptr;
  REQUIRE(tx.allocate(COUNT, &burst) == Status::SUCCESS);
  std::vector<std::pair<Bytes, FlowId>> wanted;
  for (std::uint32_t i = 0; i < COUNT; ++i) {
    // Headers have a region of 20 bytes: a packet in one piece is in the other.
    const std::uint32_t cut = i % 3 == 0 ? 20 : 0;
    const Bytes packet = udp_frame(5000, i);
    std::memcpy(burst->pkts[0][i], packet.data(), cut);
    std::memcpy(burst->pkts[1][i], packet.data() + cut, packet.size() - cut);
    burst->pkt_lens[0][i] = cut;
    burst->pkt_lens[1][i] = static_cast<std::uint32_t>(packet.size()) - cut;
    wanted.emplace_back(packet, FlowId{10});
  }
  REQUIRE(tx.send(burst) == Status::SUCCESS);
  CHECK(receive_all(session->rx_queue(0, 0), COUNT) == wanted);
  CHECK(session->port(0).steering.counts(0).bytes == COUNT * wanted[0].first.size());
  finish(*session);
}

TEST_CASE("a flow counts its packets that find no buffer", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  const auto session = Session::open(config_with_many_bursts());
  RxQueue& rx = session->rx_queue(0, 0);
  // The engine may have made more than were configured.
  const auto buffers = static_cast<std::uint32_t>(rx.region(0).config().num_bufs_);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, buffers + 500));
  wait_received(rx, buffers + 500);
  CHECK(rx.counters().dropped[DropReason::NO_PACKET_BUFFER] == 500);
  check_flow(*session, 0, buffers + 500, rx.counters().received_bytes);
  CHECK(receive_all(rx, buffers).back().first == udp_frame(5000, buffers - 1));
  finish(*session);
}

TEST_CASE("a flow never counts fewer packets than its queue", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  const auto session = Session::open(config_with_many_bursts());
  RxQueue& rx = session->rx_queue(0, 0);
  std::atomic<std::uint64_t> fewer{0};
  {
    const std::jthread reader([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const std::uint64_t queue = rx.counters().received;
        if (session->port(0).steering.counts(0).packets < queue) ++fewer;
      }
    });
    // There are buffers for all.
    REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 20'000));
    CHECK(receive_all(rx, 20'000).back().first == udp_frame(5000, 19'999));
  }
  CHECK(fewer == 0);
  finish(*session);
}

TEST_CASE("every transmit queue of a ring reaches the receive queues", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  NetworkConfig config = ring_config();
  std::vector<TxQueueConfig>& tx = config.ifs_[0].tx_.queues_;
  tx.push_back(tx[0]);
  tx.back().common_.name_ = "tx1";
  tx.back().common_.id_ = 1;
  const auto session = Session::open(config);
  for (int id = 0; id < 2; ++id) {
    REQUIRE(send_frames(session->tx_queue(0, id), 5000, 0, 100));
    CHECK(receive_numbers(session->rx_queue(0, 0), 100).size() == 100);
  }
  finish(*session);
}

TEST_CASE("packets that nobody receives are not sent to who opens the ring next",
          "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  NetworkConfig sends = ring_config();
  sends.ifs_[0].rx_ = {};
  {
    const auto session = Session::open(sends);
    REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 100, 10));
    REQUIRE(session->tx_queue(0, 0).wait_idle(PATIENCE_NS));
    finish(*session);
  }
  const auto session = Session::open(ring_config());
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 10));
  CHECK(receive_numbers(session->rx_queue(0, 0), 10).front() == 0);
  CHECK(session->rx_queue(0, 0).counters().received == 10);
  finish(*session);
}

TEST_CASE("a device receives into the buffers of the region", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  // It produces packets without end.
  NetworkConfig config = loopback_config();
  use_dpdk(config, {"net_null0,size=200"});
  config.ifs_[0].tx_ = {};
  config.rx_meta_buffers_ = 1024;
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  const memory::MemoryRegion& region = rx.region(0);
  std::vector<Burst*> held;
  // Until the device has too few buffers for all that it reads at once, and waits.
  while (region.available() >= 128) {
    Burst* burst = next_burst(rx);
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
      CHECK(burst->pkt_lens[0][i] == 200);
      REQUIRE(burst->pkts[0][i] == region.address(burst->buffers[0][i]));
    }
    held.push_back(burst);
  }
  for (Burst* burst : held) burst->release();
  for (int i = 0; i < 100; ++i) next_burst(rx)->release();
  finish(*session);
}
