#include <catch2/catch.hpp>

#include <numeric>
#include <string>

#include "daqiri/error.h"
#include "session/loopback_config.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::int64_t IN_TIME = 10'000'000'000;

}  // namespace

TEST_CASE("Frames reach the queue of their flow, in order and whole", "[session]") {
  const auto session = Session::open(loopback_config());
  TxQueue& tx = session->tx_queue(0, 0);
  REQUIRE(send_frames(tx, 5001, 0, 1000));
  REQUIRE(send_frames(tx, 5000, 1000, 500));
  const auto second = receive_numbers(session->rx_queue(0, 1), 1000);
  const auto first = receive_numbers(session->rx_queue(0, 0), 500);
  REQUIRE(second.size() == 1000);
  REQUIRE(first.size() == 500);
  for (std::uint32_t i = 0; i < 1000; ++i) REQUIRE(second[i] == i);
  for (std::uint32_t i = 0; i < 500; ++i) REQUIRE(first[i] == 1000 + i);
  REQUIRE(tx.wait_idle(IN_TIME));
  REQUIRE(tx.counters().sent == 1500);
}

TEST_CASE(
    "Packets carry their flow id and arrival time; unmatched ones go to the first queue as flow 0",
    "[session]") {
  const auto session = Session::open(loopback_config(4, 0));
  const std::uint64_t before = realtime_ns();
  REQUIRE(send_frames(session->tx_queue(0, 0), 5001, 0, 4));
  REQUIRE(send_frames(session->tx_queue(0, 0), 9, 0, 4));
  for (const auto& [queue, flow] : {std::pair{1, FlowId{11}}, std::pair{0, FlowId{0}}}) {
    RxQueue& rx = session->rx_queue(0, queue);
    Burst* burst = nullptr;
    for (int i = 0; i < 100 && (burst = rx.receive()) == nullptr; ++i) rx.wait(50'000'000);
    REQUIRE(burst != nullptr);
    REQUIRE(burst->num_packets() == 4);
    for (std::uint32_t i = 0; i < 4; ++i) {
      REQUIRE(burst->flow_ids[i] == flow);
      REQUIRE(burst->timestamps[i] >= before);
      REQUIRE(burst->timestamps[i] <= realtime_ns());
    }
    burst->release();
  }
}

TEST_CASE("With flow isolation, unmatched packets are counted as filtered", "[session]") {
  auto config = loopback_config(4);
  config.ifs_[0].rx_.flow_isolation_ = true;
  const auto session = Session::open(config);
  REQUIRE(send_frames(session->tx_queue(0, 0), 9, 0, 40));
  session->close();
  const RxSnapshot counters = session->rx_queue(0, 0).counters();
  REQUIRE(counters.received == 40);
  REQUIRE(counters.dropped[static_cast<std::size_t>(DropReason::FILTERED)] == 40);
  REQUIRE(balanced(counters));
}

TEST_CASE("A burst is handed over when full, after its timeout, or at close", "[session]") {
  SECTION("timeout") {
    const auto session = Session::open(loopback_config(64, 1000));
    REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 3));
    REQUIRE(receive_numbers(session->rx_queue(0, 0), 3).size() == 3);
  }
  SECTION("no timeout: only full bursts, and the rest at close") {
    const auto session = Session::open(loopback_config(64, 0));
    RxQueue& rx = session->rx_queue(0, 0);
    REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 70));
    REQUIRE(receive_numbers(rx, 64).size() == 64);
    REQUIRE(session->tx_queue(0, 0).wait_idle(IN_TIME));
    REQUIRE(rx.receive() == nullptr);
    session->close();
    Burst* burst = rx.receive();
    REQUIRE(burst != nullptr);
    REQUIRE(burst->num_packets() == 6);
    burst->release();
    REQUIRE(rx.receive() == nullptr);
  }
}

TEST_CASE("A frame longer than the buffers is dropped as truncated", "[session]") {
  auto config = loopback_config();
  config.mrs_.at("rx_frames").buf_size_ = 100;
  const auto session = Session::open(config);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 10));
  session->close();
  const RxSnapshot counters = session->rx_queue(0, 0).counters();
  REQUIRE(counters.dropped[static_cast<std::size_t>(DropReason::TRUNCATED)] == 10);
  REQUIRE(balanced(counters));
}

TEST_CASE("Two memory regions split headers from data", "[session]") {
  auto config = loopback_config(8);
  add_region(config, "headers", "rx_frames", 64);
  for (auto& queue : config.ifs_[0].rx_.queues_) {
    queue.common_.mrs_ = {"headers", "rx_frames"};
    queue.common_.split_boundary_ = 42;
  }
  const auto session = Session::open(config);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 77, 1));
  RxQueue& rx = session->rx_queue(0, 0);
  Burst* burst = nullptr;
  for (int i = 0; i < 100 && (burst = rx.receive()) == nullptr; ++i) rx.wait(50'000'000);
  REQUIRE(burst != nullptr);
  const auto frame = udp_frame(5000, 77);
  REQUIRE(burst->hdr.hdr.num_segs == 2);
  REQUIRE(burst->pkt_lens[0][0] == 42);
  REQUIRE(burst->pkt_lens[1][0] == frame.size() - 42);
  REQUIRE(std::memcmp(burst->pkts[0][0], frame.data(), 42) == 0);
  REQUIRE(std::memcmp(burst->pkts[1][0], frame.data() + 42, frame.size() - 42) == 0);
  burst->release();
}

TEST_CASE("Launch times are kept, late ones are counted, order holds", "[session]") {
  const auto session = Session::open(loopback_config(16, 200));
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  const std::uint64_t start = realtime_ns() + 20'000'000;
  REQUIRE(send_frames(tx, 5000, 0, 64, start, 200'000));
  const std::uint64_t submitted = realtime_ns();
  std::uint32_t expected = 0;
  std::uint64_t last = monotonic_ns();
  while (expected < 64 && monotonic_ns() - last < IN_TIME) {
    Burst* burst = rx.receive();
    if (burst == nullptr) {
      rx.wait(50'000'000);
      continue;
    }
    last = monotonic_ns();
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i, ++expected) {
      REQUIRE(number_of(*burst, i) == expected);
      // Never before the launch time.
      REQUIRE(burst->timestamps[i] >= start + 200'000ULL * expected);
    }
    burst->release();
  }
  REQUIRE(expected == 64);
  REQUIRE(tx.wait_idle(IN_TIME));
  REQUIRE(tx.lateness().count() == 64);
  // Late packets are only those that were due before they were submitted.
  const std::uint64_t late = tx.counters().late;
  REQUIRE(late <= (submitted > start ? (submitted - start) / 200'000 + 1 : 0));
  REQUIRE(send_frames(tx, 5000, 0, 5, realtime_ns() - 1'000'000'000, 1));
  REQUIRE(tx.wait_idle(IN_TIME));
  REQUIRE(tx.counters().late == late + 5);
  tx.reset_lateness();
}

TEST_CASE("Closing drops packets whose launch time is far, counted as flushed", "[session]") {
  const auto session = Session::open(loopback_config());
  TxQueue& tx = session->tx_queue(0, 0);
  REQUIRE(send_frames(tx, 5000, 0, 10, realtime_ns() + 3'600'000'000'000ULL, 1));
  session->close();
  const TxSnapshot counters = tx.counters();
  REQUIRE(counters.submitted == 10);
  REQUIRE(counters.dropped[static_cast<std::size_t>(DropReason::FLUSHED)] == 10);
  REQUIRE(counters.held == 0);
  Burst* burst = nullptr;
  REQUIRE(tx.allocate(1, &burst) == Status::NOT_READY);
}

TEST_CASE("Pacing bounds the rate", "[session]") {
  auto config = loopback_config(64, 500);
  // 1280-byte frames at 100 Mb/s: 102.4 us each, so that 200 of them take at least 19 ms (1 ms
  // credit).
  config.ifs_[0].tx_.queues_[0].pacing_mbps_ = 100;
  const auto session = Session::open(config);
  TxQueue& tx = session->tx_queue(0, 0);
  const std::uint64_t begun = monotonic_ns();
  REQUIRE(send_frames(tx, 5000, 0, 200, 0, 0, 1280));
  REQUIRE(tx.wait_idle(IN_TIME));
  REQUIRE(monotonic_ns() - begun > 18'500'000);
}

TEST_CASE("Dropping all traffic keeps everything from the application until allowed", "[session]") {
  const auto session = Session::open(loopback_config(8, 200));
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  REQUIRE(send_frames(tx, 5000, 0, 20));
  REQUIRE(tx.wait_idle(IN_TIME));
  rx.set_drop_all(true);
  REQUIRE(send_frames(tx, 5000, 20, 20));
  REQUIRE(tx.wait_idle(IN_TIME));
  rx.set_drop_all(false);
  REQUIRE(send_frames(tx, 5000, 40, 20));
  const auto numbers = receive_numbers(rx, 20);
  REQUIRE(numbers.size() == 20);
  REQUIRE(numbers.front() == 40);
  session->close();
  REQUIRE(rx.counters().dropped[static_cast<std::size_t>(DropReason::FILTERED)] == 40);
  REQUIRE(balanced(rx.counters()));
}

TEST_CASE("Flushing a queue drops what is queued and counts it", "[session]") {
  const auto session = Session::open(loopback_config(8, 0));
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  REQUIRE(send_frames(tx, 5000, 0, 21));
  REQUIRE(tx.wait_idle(IN_TIME));
  rx.request_flush();
  REQUIRE(rx.receive() == nullptr);
  REQUIRE(send_frames(tx, 5000, 100, 8));
  const auto numbers = receive_numbers(rx, 8);
  REQUIRE(numbers.size() == 8);
  REQUIRE(numbers.front() == 100);
  session->close();
  REQUIRE(rx.counters().dropped[static_cast<std::size_t>(DropReason::FLUSHED)] == 21);
  REQUIRE(balanced(rx.counters()));
}

TEST_CASE("Bursts outlive their session", "[session]") {
  auto session = Session::open(loopback_config(8));
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 5, 8));
  RxQueue& rx = session->rx_queue(0, 0);
  Burst* burst = nullptr;
  for (int i = 0; i < 100 && (burst = rx.receive()) == nullptr; ++i) rx.wait(50'000'000);
  REQUIRE(burst != nullptr);
  session->close();
  session.reset();
  REQUIRE(number_of(*burst, 0) == 5);
  burst->release();
}

TEST_CASE("Several sessions run side by side", "[session]") {
  const auto a = Session::open(loopback_config());
  const auto b = Session::open(loopback_config());
  REQUIRE(send_frames(a->tx_queue(0, 0), 5000, 0, 100));
  REQUIRE(send_frames(b->tx_queue(0, 0), 5000, 500, 100));
  REQUIRE(receive_numbers(a->rx_queue(0, 0), 100).front() == 0);
  REQUIRE(receive_numbers(b->rx_queue(0, 0), 100).front() == 500);
}

TEST_CASE("What the build cannot do is refused with a reason", "[session]") {
  const auto refused = [](const NetworkConfig& config, Status status, const std::string& word) {
    try {
      Session::open(config);
      FAIL("opened");
    } catch (const Error& error) {
      INFO(error.what());
      REQUIRE(error.status() == status);
      REQUIRE(std::string(error.what()).find(word) != std::string::npos);
    }
  };
  auto config = loopback_config();
  config.ifs_[0].rx_.queues_[0].common_.cpu_core_ = "1023";
  config.ifs_[0].tx_.queues_[0].common_.cpu_core_ = "8000";
  refused(
      config, Status::INVALID_PARAMETER,
      "1023 (queue 'rx0' of interface 'port0'), 8000 (queue 'tx0' of interface 'port0'); it may "
      "use ");
  config = loopback_config();
  config.ifs_[0].rx_.hardware_timestamps_ = true;
  refused(config, Status::NOT_SUPPORTED, "hardware_timestamps");
  config = loopback_config();
  config.ifs_[0].tx_.accurate_send_ = true;
  refused(config, Status::NOT_SUPPORTED, "accurate_send");
  config = loopback_config();
  config.mrs_.at("rx_frames").kind_ = MemoryKind::DEVICE;
  refused(config, Status::NOT_SUPPORTED, "CUDA");
  config = loopback_config();
  config.common_.loopback_ = LoopbackType::DISABLED;
  config.common_.engine = EngineType::IBVERBS;
  config.ifs_[0].address_ = "0000:03:00.0";
  refused(config, Status::NOT_SUPPORTED, "engine 'ibverbs' is not part of this build");
}

TEST_CASE("a queue that a recorder reads cannot be read beside it", "[session]") {
  const auto session = Session::open(loopback_config());
  RxQueue& recorded = session->rx_queue(0, 0);
  recorded.attach_recorder("data/capture");
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 10));
  REQUIRE(send_frames(session->tx_queue(0, 0), 5001, 10, 10));
  const std::string refusal =
      "receive queue 'rx0' is being recorded to data/capture_*, and each packet is delivered once; "
      "stop that recorder first";
  CHECK_THROWS_WITH(recorded.receive(), refusal);
  // Other queues can be read, also by a search of all.
  std::uint32_t received = 0;
  const std::uint64_t end = monotonic_ns() + 10'000'000'000;
  while (received < 10 && monotonic_ns() < end) {
    Burst* burst = session->any_rx_queue(0).receive();
    if (burst == nullptr) continue;
    CHECK(number_of(*burst, 0) >= 10);
    received += burst->num_packets();
    burst->release();
  }
  CHECK(received == 10);
  session->rx_queue(0, 1).attach_recorder("data/other");
  CHECK_THROWS_WITH(session->any_rx_queue().receive(), Catch::Contains("is being recorded to"));
  session->rx_queue(0, 1).detach_recorder();
  recorded.detach_recorder();
  CHECK(receive_numbers(recorded, 10).size() == 10);
}
