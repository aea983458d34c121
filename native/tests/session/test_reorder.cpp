// Reorder plans in a running session.
#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "session/reorder_config.h"
#include "system/thread.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint32_t NUM_FRAMES = 200;

/// The next burst. Waits for at most 10 s.
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
  // Shuffle within half of a frame and half of the next one.
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
        packets += burst->reorder.source_packet_count;
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
  const auto session = Session::open(reordering(200'000));
  RxQueue& rx = session->rx_queue(0, 0);
  // All packets except number 3; number 4 twice.
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
  // Now the packet is late.
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 3, 1));
  const std::uint64_t end = monotonic_ns() + 10'000'000'000;
  const auto& plan = session->reorder_plans(0).front();
  while (plan.counters().late < 1 && monotonic_ns() < end) rx.wait(1'000'000);
  CHECK(plan.counters().late == 1);
  CHECK(plan.counters().duplicate == 1);
  CHECK(plan.counters().incomplete == 1);
  CHECK(plan.counters().missing == 1);
  while (rx.counters().received < FRAME_PACKETS + 1 && monotonic_ns() < end) rx.wait(1'000'000);
  CHECK(rx.counters().received == FRAME_PACKETS + 1);
  CHECK(rx.counters().delivered == FRAME_PACKETS + 1);
  CHECK(balanced(rx.counters()));
}

TEST_CASE("closing hands over what is open; a flush forgets it", "[session]") {
  const auto session = Session::open(reordering());
  RxQueue& rx = session->rx_queue(0, 0);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 1000, 3));
  const std::uint64_t end = monotonic_ns() + 10'000'000'000;
  while (rx.counters().received < 3 && monotonic_ns() < end) rx.wait(1'000'000);
  CHECK(rx.counters().delivered == 3);
  rx.request_flush();
  CHECK(session->reorder_plans(0).front().counters().lost == 1);
  // The numbers start again.
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 5));
  while (rx.counters().received < 8 && monotonic_ns() < end) rx.wait(1'000'000);
  session->close();
  Burst* burst = rx.receive();
  REQUIRE(burst != nullptr);
  CHECK(burst->reorder.source_packet_count == 5);
  CHECK(*burst->valid == 0x1FU);
  CHECK(burst->reorder.batch_id == 0);
  burst->release();
  CHECK(balanced(rx.counters()));
  CHECK(session->memory()->regions.at("output")->available() == 16);
}

TEST_CASE("several queues, pollers and workers make the same frames", "[session]") {
  NetworkConfig config = reordering();
  ReorderConfig& plan = config.ifs_[0].rx_.reorder_configs_[0];
  const bool several = GENERATE(false, true);
  const bool pollers = several && GENERATE(false, true);
  if (several) {
    const NetworkConfig two = loopback_config(32, 500);
    config.ifs_[0].rx_.queues_ = two.ifs_[0].rx_.queues_;
    config.ifs_[0].rx_.flows_ = two.ifs_[0].rx_.flows_;
    plan.flow_ids_ = {10, 11};
    // Queues are not synchronized: no queue gets further ahead than this.
    plan.window_ = 8;
  }
  plan.cpu_cores_.assign(GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{3}), "any");
  if (pollers)
    config.ifs_[0].rx_.queues_[1].common_.cpu_core_ = std::to_string(available_cores().front());
  CAPTURE(several, pollers, plan.cpu_cores_.size());
  const auto session = Session::open(config);
  const reorder::RunningPlan& running = session->reorder_plans(0).front();
  Rotation& rx = session->any_rx_queue(0);
  std::uint64_t frames = 0;
  for (std::uint32_t at = 0; at < FRAME_PACKETS * NUM_FRAMES; at += 64) {
    // In reverse order, so that both queues have packets of each frame.
    REQUIRE(send_packets(session->tx_queue(0, 0), 64, 0, 0, 10'000'000'000, [&](std::uint32_t i) {
      return udp_frame(several && i % 3 == 0 ? 5001 : 5000, at + (i ^ 15U));
    }));
    const std::uint64_t end = monotonic_ns() + 10'000'000'000;
    while (running.counters().packets < at + 64 && monotonic_ns() < end)
      session->rx_queue(0, 0).wait(100'000);
    while (frames < (at + 64) / FRAME_PACKETS) {
      Burst* burst = rx.receive();
      if (burst == nullptr) {
        REQUIRE(monotonic_ns() < end);
        session->rx_queue(0, 0).wait(1'000'000);
        continue;
      }
      ++frames;
      const auto batch = static_cast<std::uint32_t>(burst->reorder.batch_id);
      const auto* bytes = static_cast<const std::uint8_t*>(burst->pkts[0][0]);
      std::size_t wrong = 0;
      for (std::uint32_t slot = 0; slot < FRAME_PACKETS; ++slot) {
        const std::uint32_t number = batch * FRAME_PACKETS + slot;
        const bool second = several && ((number % 64) ^ 15U) % 3 == 0;
        const auto frame = udp_frame(second ? 5001 : 5000, number);
        wrong += std::equal(frame.begin() + 42, frame.end(), bytes + slot * 86U) ? 0 : 1;
      }
      CHECK(wrong == 0);
      CHECK(burst->missing == 0);
      burst->release();
    }
  }
  session->close();
  CHECK(rx.receive() == nullptr);
  const reorder::ReorderSnapshot counters = running.counters();
  CHECK(counters.complete == NUM_FRAMES);
  CHECK(counters.placed == FRAME_PACKETS * NUM_FRAMES);
  for (const auto& queue : session->port(0).rx) {
    CHECK(queue->closed());
    CHECK(balanced(queue->counters()));
    CHECK(queue->counters().held == 0);
  }
  for (const auto& [name, region] : session->memory()->regions)
    CHECK(region->available() == region->config().num_bufs_);
}

TEST_CASE("a recorder and frames of the same packets", "[session]") {
  const auto session = Session::open(reordering());
  RxQueue& rx = session->rx_queue(0, 0);
  rx.attach_recorder("test");
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, FRAME_PACKETS * 2));
  std::uint32_t packets = 0;
  const std::uint64_t end = monotonic_ns() + 10'000'000'000;
  while (packets < FRAME_PACKETS * 2 && monotonic_ns() < end) {
    Burst* burst = rx.receive_packets();
    if (burst == nullptr) {
      rx.wait(1'000'000);
      continue;
    }
    packets += burst->num_packets();
    burst->release();
  }
  CHECK(packets == FRAME_PACKETS * 2);
  reorder::RunningPlan& plan = session->reorder_plans(0).front();
  plan.attach("another test");
  CHECK_THROWS_WITH(plan.attach("a third"), Catch::Contains("go to another test"));
  rx.detach_recorder();
  CHECK(rx.receive() == nullptr);
  for (int i = 0; i < 2; ++i) {
    Burst* burst = plan.pop();
    REQUIRE(burst != nullptr);
    burst->release();
  }
  CHECK(plan.pop() == nullptr);
  plan.detach();
  CHECK(balanced(rx.counters()));
}

TEST_CASE("a receiver that is slower than the stream costs frames, each counted", "[session]") {
  constexpr std::uint32_t PACKETS = 200'000;
  const auto session = Session::open(reordering(0, 1));
  reorder::RunningPlan& plan = session->reorder_plans(0).front();
  plan.attach("a test");
  std::uint64_t received = 0;
  std::thread receiver([&] {
    for (bool last = false; !last;) {
      last = plan.finished();
      const WaitQueue::Ticket ticket = plan.frames().prepare();
      Burst* burst = plan.pop();
      if (burst == nullptr && !last) plan.frames().wait(ticket, 1'000'000);
      for (; burst != nullptr; burst = plan.pop(), ++received) burst->release();
    }
  });
  CHECK(send_packets(session->tx_queue(0, 0), PACKETS, 0, 0, 60'000'000'000,
                     [](std::uint32_t i) { return udp_frame(5000, i); }));
  const std::uint64_t end = monotonic_ns() + 60'000'000'000;
  while (plan.counters().packets < PACKETS && monotonic_ns() < end)
    session->rx_queue(0, 0).wait(1'000'000);
  session->close();
  receiver.join();
  const reorder::ReorderSnapshot counters = plan.counters();
  CHECK(counters.packets == PACKETS);
  CHECK(counters.complete == received);
  CHECK(counters.lost == PACKETS - received);
  CHECK(counters.no_buffer == counters.lost);
  CHECK(session->memory()->regions.at("output")->available() == 16);
}
