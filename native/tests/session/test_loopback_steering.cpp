// Steering by flows of every kind on a loopback.
#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "frames.h"
#include "session/loopback_config.h"
#include "steering/toeplitz.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

using Frame = std::vector<std::uint8_t>;

/// Bytes of all segments and the flow id of each packet.
std::vector<std::pair<Frame, FlowId>> receive(RxQueue& rx, std::size_t count) {
  std::vector<std::pair<Frame, FlowId>> packets;
  const std::uint64_t end = monotonic_ns() + 20'000'000'000ULL;
  while (packets.size() < count && monotonic_ns() < end) {
    Burst* burst = rx.receive();
    if (burst == nullptr) {
      rx.wait(50'000'000);
      continue;
    }
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
      Frame bytes;
      for (int s = 0; s < rx.num_segments(); ++s) {
        const auto* at = static_cast<const std::uint8_t*>(burst->pkts[s][i]);
        bytes.insert(bytes.end(), at, at + burst->pkt_lens[s][i]);
      }
      packets.emplace_back(std::move(bytes), burst->flow_ids[i]);
    }
    burst->release();
  }
  REQUIRE(packets.size() == count);
  return packets;
}

void send(Session& session, const std::vector<Frame>& frames) {
  REQUIRE(send_packets(session.tx_queue(0, 0), static_cast<std::uint32_t>(frames.size()), 0, 0,
                       10'000'000'000, [&](std::uint32_t i) { return frames[i]; }));
}

FlowConfig& only_flow(NetworkConfig& config) {
  auto& flows = config.ifs_[0].rx_.flows_;
  flows.resize(1);
  return flows.front();
}

}  // namespace

TEST_CASE("RSS spreads tuples over queues, each packet to that of its hash", "[session]") {
  auto config = loopback_config();
  FlowConfig& flow = only_flow(config);
  flow.match_ = {};
  flow.action_.ids_ = {1, 0};
  flow.actions_ = {flow.action_};
  const auto session = Session::open(config);
  std::vector<Frame> frames;
  std::map<std::uint16_t, std::vector<Frame>> expected;
  for (std::uint32_t i = 0; i < 400; ++i) {
    FrameFields fields;
    fields.src = 0x0A000000U + i % 20;
    fields.udp_src = static_cast<std::uint16_t>(1000 + i % 7);
    fields.payload = static_cast<std::uint16_t>(10 + i);
    frames.push_back(make_frame(fields));
    const auto hash =
        steering::toeplitz(fields.src, fields.dst, fields.udp_src, fields.udp_dst) % 2;
    expected[hash == 0 ? 1 : 0].push_back(frames.back());
  }
  REQUIRE(expected.size() == 2);
  send(*session, frames);
  for (const auto& [queue, wanted] : expected) {
    const auto packets = receive(session->rx_queue(0, queue), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      CHECK(packets[i].first == wanted[i]);
      CHECK(packets[i].second == flow.id_);
    }
  }
  CHECK(session->port(0).steering.counts(0).packets == 400);
}

TEST_CASE("a flex item chooses among streams of one port", "[session]") {
  auto config = loopback_config();
  RxConfig& rx = config.ifs_[0].rx_;
  rx.flex_items_ = {{"stream", 3, 4, 2000}};
  for (std::uint32_t i = 0; i < 2; ++i) {
    rx.flows_[i].match_ = {};
    rx.flows_[i].match_.type_ = FlowMatchType::FLEX_ITEM;
    rx.flows_[i].match_.flex_item_match_ = {3, i + 1, UINT32_MAX};
  }
  bool split = false;
  SECTION("whole packets") {}
  SECTION("headers and payload in segments of their own") { split = true; }
  if (split) {
    // Split as by a program with two segments: the word is in the second one.
    for (const char* name : {"rx_headers", "tx_headers"}) {
      config.mrs_[name] = config.mrs_.at("rx_frames");
      config.mrs_[name].name_ = name;
      config.mrs_[name].buf_size_ = 42;
    }
    config.ifs_[0].tx_.queues_[0].common_.mrs_ = {"tx_headers", "tx_frames"};
    for (RxQueueConfig& queue : rx.queues_) queue.common_.mrs_ = {"rx_headers", "rx_frames"};
  }
  const auto session = Session::open(config);
  const auto frame_of = [](std::uint32_t word) {
    auto frame = make_frame({});
    put32(frame, 46, word);
    return frame;
  };
  TxQueue& tx = session->tx_queue(0, 0);
  Burst* burst = nullptr;
  REQUIRE(tx.allocate(3, &burst) == Status::SUCCESS);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto frame = frame_of(i);
    const std::uint32_t headers = split ? 42 : static_cast<std::uint32_t>(frame.size());
    const auto rest = static_cast<std::uint32_t>(frame.size()) - headers;
    std::memcpy(burst->pkts[0][i], frame.data(), headers);
    burst->pkt_lens[0][i] = headers;
    if (!split) continue;
    std::memcpy(burst->pkts[1][i], frame.data() + headers, rest);
    burst->pkt_lens[1][i] = rest;
  }
  REQUIRE(tx.send(burst) == Status::SUCCESS);
  using Packets = std::vector<std::pair<Frame, FlowId>>;
  CHECK(receive(session->rx_queue(0, 0), 2) ==
        Packets{{frame_of(0), 0}, {frame_of(1), rx.flows_[0].id_}});
  CHECK(receive(session->rx_queue(0, 1), 1) == Packets{{frame_of(2), rx.flows_[1].id_}});
}

TEST_CASE("eCPRI messages reach the queue of their id, others are filtered", "[session]") {
  auto config = loopback_config();
  RxConfig& rx = config.ifs_[0].rx_;
  rx.flow_isolation_ = true;
  for (std::uint16_t i = 0; i < 2; ++i) {
    rx.flows_[i].match_ = {};
    rx.flows_[i].match_.type_ = FlowMatchType::ECPRI;
    rx.flows_[i].match_.ecpri_match_ = {0, true, i, true};
  }
  const auto session = Session::open(config);
  send(*session, {ecpri_frame(0, 1), ecpri_frame(2, 1), make_frame({}), ecpri_frame(0, 0)});
  using Packets = std::vector<std::pair<Frame, FlowId>>;
  CHECK(receive(session->rx_queue(0, 0), 1) == Packets{{ecpri_frame(0, 0), rx.flows_[0].id_}});
  CHECK(receive(session->rx_queue(0, 1), 1) == Packets{{ecpri_frame(0, 1), rx.flows_[1].id_}});
  const RxSnapshot counters = session->rx_queue(0, 0).counters();
  CHECK(counters.dropped[static_cast<std::size_t>(DropReason::FILTERED)] == 2);
}
