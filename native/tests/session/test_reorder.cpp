// Reorder plans of a running session.
#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <random>

#include "session/loopback_config.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint32_t FRAME_PACKETS = 16;
constexpr std::uint32_t NUM_FRAMES = 200;

/// Port 5000 is reordered to frames of 16 packets by the number that udp_frame writes, port 5001 is
/// not.
NetworkConfig reordering(std::uint32_t timeout_us = 0) {
  NetworkConfig config = loopback_config(32, 500);
  MemoryRegionConfig output;
  output.name_ = "output";
  output.num_bufs_ = 16;
  output.buf_size_ = std::size_t{FRAME_PACKETS} * 2048;
  config.mrs_.emplace(output.name_, output);
  RxConfig& rx = config.ifs_[0].rx_;
  rx.queues_.pop_back();
  rx.flows_[1].action_.id_ = 0;
  rx.flows_[1].actions_ = {rx.flows_[1].action_};
  ReorderConfig plan;
  plan.name_ = "frames";
  plan.reorder_type_ = "cpu";
  plan.memory_region_ = "output";
  plan.payload_byte_offset_ = 42;
  plan.flow_ids_ = {10};
  plan.method_ = ReorderMethod::SEQ_PACKETS_PER_BATCH;
  ReorderBitFieldConfig number{336, 32};
  number.byte_order_ = ReorderByteOrder::LITTLE;
  plan.seq_packets_per_batch_ = {number, FRAME_PACKETS};
  plan.timeout_us_ = timeout_us;
  rx.reorder_configs_.push_back(plan);
  return config;
}

/// The next burst, within 10 s.
Burst* next(RxQueue& rx) {
  const std::uint64_t end = monotonic_ns() + 10'000'000'000;
  while (monotonic_ns() < end) {
    if (Burst* burst = rx.receive()) return burst;
    rx.wait(50'000'000);
  }
  return nullptr;
}

}  // namespace

TEST_CASE("shuffled packets arrive as frames, other flows as packets", "[session]") {
  const auto session = Session::open(reordering());
  RxQueue& rx = session->rx_queue(0, 0);
  std::mt19937 random(7);
  std::vector<std::uint32_t> order(std::size_t{FRAME_PACKETS} * NUM_FRAMES);
  std::iota(order.begin(), order.end(), 0U);
  // Within a frame and the one after it.
  for (std::size_t i = 0; i + FRAME_PACKETS < order.size(); i += FRAME_PACKETS) {
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(i);
    std::shuffle(first + FRAME_PACKETS / 2, first + FRAME_PACKETS + FRAME_PACKETS / 2, random);
  }
  std::uint64_t packets = 0;
  std::uint64_t others = 0;
  std::uint64_t frames = 0;
  std::vector<bool> seen(NUM_FRAMES);
  for (std::size_t at = 0; at < order.size(); at += 64) {
    const std::size_t n = std::min<std::size_t>(64, order.size() - at);
    REQUIRE(send_packets(session->tx_queue(0, 0), static_cast<std::uint32_t>(n + 1), 0, 0,
                         10'000'000'000, [&](std::uint32_t i) {
                           return i < n ? udp_frame(5000, order[at + i]) : udp_frame(5001, 1);
                         }));
    const bool last = at + n == order.size();
    while (others < at / 64 + 1 || frames + (last ? 0 : 3) < (at + n) / FRAME_PACKETS) {
      Burst* burst = next(rx);
      REQUIRE(burst != nullptr);
      if (burst->valid == nullptr) {
        for (std::uint32_t i = 0; i < burst->num_packets(); ++i) CHECK(burst->flow_ids[i] == 11);
        others += burst->num_packets();
      } else {
        ++frames;
        packets += burst->source_packets;
        CHECK(burst->num_packets() == 1);
        CHECK(burst->hdr.hdr.burst_flags == DAQIRI_BURST_FLAG_REORDERED);
        CHECK(burst->hdr.hdr.max_pkt == FRAME_PACKETS);
        CHECK(burst->timestamps[0] > 0);
        const auto batch = static_cast<std::uint32_t>(burst->reorder.batch_id);
        REQUIRE(batch < NUM_FRAMES);
        CHECK_FALSE(seen[batch]);
        seen[batch] = true;
        CHECK(burst->reorder.aggregate_len == FRAME_PACKETS * (128 - 42));
        CHECK(burst->pkt_lens[0][0] == burst->reorder.aggregate_len);
        const auto* bytes = static_cast<const std::uint8_t*>(burst->pkts[0][0]);
        std::size_t wrong = 0;
        for (std::uint32_t slot = 0; slot < FRAME_PACKETS; ++slot) {
          const auto frame = udp_frame(5000, batch * FRAME_PACKETS + slot);
          wrong += std::equal(frame.begin() + 42, frame.end(), bytes + slot * 86U) ? 0 : 1;
        }
        CHECK(wrong == 0);
      }
      burst->release();
    }
  }
  CHECK(frames == NUM_FRAMES);
  CHECK(packets == order.size());
  CHECK(balanced(rx.counters()));
  CHECK(rx.counters().held == 0);
  CHECK(rx.counters().dropped_total() == 0);
  CHECK(session->memory()->regions.at("output")->available() == 16);
}

TEST_CASE("an incomplete frame comes after the timeout, and the account is right", "[session]") {
  const auto session = Session::open(reordering(2000));
  RxQueue& rx = session->rx_queue(0, 0);
  // All but number 3, number 4 twice.
  REQUIRE(send_packets(session->tx_queue(0, 0), FRAME_PACKETS, 0, 0, 10'000'000'000,
                       [](std::uint32_t i) { return udp_frame(5000, i == 3 ? 4 : i); }));
  Burst* burst = next(rx);
  REQUIRE(burst != nullptr);
  CHECK(burst->hdr.hdr.burst_flags ==
        (DAQIRI_BURST_FLAG_REORDERED | DAQIRI_BURST_FLAG_REORDER_TIMEOUT));
  CHECK(burst->hdr.hdr.max_pkt == FRAME_PACKETS - 1);
  CHECK(*burst->valid == 0xFFF7U);
  const auto* bytes = static_cast<const std::uint8_t*>(burst->pkts[0][0]);
  CHECK(std::all_of(bytes + 3 * 86, bytes + 4 * 86, [](std::uint8_t byte) { return byte == 0; }));
  burst->release();
  // Too late now.
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 3, 1));
  const auto reordered = static_cast<std::size_t>(DropReason::REORDER);
  const std::uint64_t end = monotonic_ns() + 10'000'000'000;
  while (rx.counters().dropped[reordered] < 2 && monotonic_ns() < end) rx.wait(1'000'000);
  CHECK(rx.counters().dropped[reordered] == 2);
  CHECK(rx.counters().received == FRAME_PACKETS + 1);
  CHECK(rx.counters().delivered == FRAME_PACKETS - 1);
  CHECK(balanced(rx.counters()));
}

TEST_CASE("closing hands over what is open; a flush forgets it", "[session]") {
  const auto session = Session::open(reordering());
  RxQueue& rx = session->rx_queue(0, 0);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 1000, 3));
  const std::uint64_t end = monotonic_ns() + 10'000'000'000;
  while (rx.counters().received < 3 && monotonic_ns() < end) rx.wait(1'000'000);
  CHECK(rx.counters().held == 3);
  rx.request_flush();
  CHECK(rx.counters().held == 0);
  CHECK(rx.counters().dropped[static_cast<std::size_t>(DropReason::FLUSHED)] == 3);
  // The numbers begin anew.
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 5));
  while (rx.counters().received < 8 && monotonic_ns() < end) rx.wait(1'000'000);
  session->close();
  Burst* burst = rx.receive();
  REQUIRE(burst != nullptr);
  CHECK(burst->source_packets == 5);
  CHECK(*burst->valid == 0x1FU);
  CHECK(burst->reorder.batch_id == 0);
  burst->release();
  CHECK(balanced(rx.counters()));
  CHECK(session->memory()->regions.at("output")->available() == 16);
}
