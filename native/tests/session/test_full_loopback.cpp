// On a loopback, a slow receiver makes the senders wait, without a deadlock.
#include <catch2/catch.hpp>

#include <atomic>
#include <numeric>
#include <thread>

#include "session/loopback_config.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::int64_t LONG_NS = 30'000'000'000;

std::uint64_t dropped_as(const RxSnapshot& counters, DropReason reason) {
  return counters.dropped[static_cast<std::size_t>(reason)];
}

/// A thread that sends `count` frames.
class Sending {
 public:
  Sending(TxQueue& tx, std::uint32_t count, std::uint16_t to = 5000)
      : thread_([&tx, count, to, this] { sent_ = send_frames(tx, to, 0, count); }) {}
  ~Sending() { done(); }
  /// True if all were submitted. Gives up after 10 s without progress.
  bool done() {
    if (thread_.joinable()) thread_.join();
    return sent_;
  }

 private:
  std::atomic<bool> sent_{false};
  std::thread thread_;
};

/// Waits until at least `least` packets have been sent and none for 50 ms. Returns the number sent.
std::uint64_t stuck_at(const TxQueue& tx, std::uint64_t least) {
  std::uint64_t sent = tx.counters().sent;
  for (int quiet = 0; quiet < 50; ++quiet) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::uint64_t now = tx.counters().sent;
    if (now < least || now != std::exchange(sent, now)) quiet = 0;
  }
  return sent;
}

void require_all(const std::vector<std::uint32_t>& numbers, std::uint32_t count,
                 std::uint32_t first = 0) {
  REQUIRE(numbers.size() == count);
  for (std::uint32_t i = 0; i < count; ++i) REQUIRE(numbers[i] == first + i);
}

/// Both queues use one region for both directions.
NetworkConfig one_region(std::uint64_t bufs) {
  NetworkConfig config = loopback_config(32, 500, bufs);
  for (auto& queue : config.ifs_[0].rx_.queues_) queue.common_.mrs_ = {"tx_frames"};
  return config;
}

}  // namespace

TEST_CASE("A slow receiver holds the sender back, and nothing is lost", "[session][full]") {
  auto config = loopback_config(32, 200, 256);
  // Fewer bursts than buffers, and fewer buffers than bursts.
  config.rx_meta_buffers_ = GENERATE(2U, 64U);
  config.ifs_[0].rx_.queues_[0].timeout_us_ = GENERATE(0U, 200U);
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  constexpr std::uint32_t COUNT = 6400;
  Sending sending(session->tx_queue(0, 0), COUNT);
  std::vector<std::uint32_t> numbers;
  const std::uint64_t end = monotonic_ns() + static_cast<std::uint64_t>(LONG_NS);
  // Without a timeout, the last burst stays open if an earlier one was delivered to free its
  // buffers.
  while (numbers.size() + 32 <= COUNT && monotonic_ns() < end) {
    Burst* burst = rx.receive();
    if (burst == nullptr) {
      rx.wait(1'000'000);
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i)
      numbers.push_back(number_of(*burst, i));
    burst->release();
  }
  REQUIRE(sending.done());
  REQUIRE(session->tx_queue(0, 0).wait_idle(LONG_NS));
  session->close();
  const auto rest = receive_numbers(rx, COUNT - numbers.size());
  numbers.insert(numbers.end(), rest.begin(), rest.end());
  require_all(numbers, COUNT);
  CHECK(rx.counters().dropped_total() == 0);
  CHECK(session->tx_queue(0, 0).counters().sent == COUNT);
}

TEST_CASE("What a receiver that never takes anything leaves with the sender is held, then flushed",
          "[session][full]") {
  const auto session = Session::open(loopback_config(32, 200, 256));
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    Burst* burst = nullptr;
    while (!stop) {
      if (tx.allocate(32, &burst) != Status::SUCCESS) {
        tx.wait_free(1'000'000);
        continue;
      }
      std::fill_n(burst->pkt_lens[0], 32, 100U);
      if (tx.send(burst) == Status::NOT_READY) burst->release();
    }
  });
  CHECK(stuck_at(tx, 256) == 256);
  CHECK_FALSE(tx.wait_idle(10'000'000));
  while (tx.counters().submitted < 512 || rx.counters().received < 256) std::this_thread::yield();
  // No more can be submitted: the waiting packets use all buffers of the sender.
  CHECK(tx.counters().submitted == 512);
  CHECK(tx.counters().held == 256);
  CHECK(rx.counters().received == 256);
  CHECK(rx.counters().held == 256);
  session->close();
  stop = true;
  sender.join();
  CHECK(tx.counters().held == 0);
  CHECK(tx.counters().dropped[static_cast<std::size_t>(DropReason::FLUSHED)] == 256);
  CHECK(receive_numbers(rx, 256).size() == 256);
  CHECK(rx.counters().dropped_total() == 0);
  for (const auto& [name, region] : session->memory()->regions)
    CHECK(region->available() == region->config().num_bufs_);
}

TEST_CASE("What has arrived and found no burst is flushed when the session closes",
          "[session][full]") {
  auto config = loopback_config(32, 0, 256);
  config.rx_meta_buffers_ = 2;
  const auto session = Session::open(config);
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  REQUIRE(send_frames(tx, 5000, 0, 200));
  REQUIRE(tx.wait_idle(LONG_NS));
  session->close();
  CHECK(receive_numbers(rx, 64).size() == 64);
  CHECK(rx.counters().received == 200);
  CHECK(dropped_as(rx.counters(), DropReason::FLUSHED) == 136);
  CHECK(rx.counters().dropped_total() == 136);
  CHECK(session->memory()->regions.at("rx_frames")->available() == 256);
}

TEST_CASE("Flushing a full queue lets its sender go on", "[session][full]") {
  const auto session = Session::open(loopback_config(32, 0, 256));
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  Sending sending(tx, 640);
  // 640 = 2 x 256 + 128. A flush may also drop packets that arrive while it runs.
  std::uint64_t flushed = 0;
  while (tx.counters().sent < 640) {
    stuck_at(tx, std::min<std::uint64_t>(flushed + 256, 640));
    rx.request_flush();
    flushed = dropped_as(rx.counters(), DropReason::FLUSHED);
    CHECK(flushed >= 256);
  }
  REQUIRE(sending.done());
  // The packets left after a flush need not be whole bursts.
  session->close();
  const auto rest = receive_numbers(rx, 640 - flushed);
  require_all(rest, static_cast<std::uint32_t>(640 - flushed), static_cast<std::uint32_t>(flushed));
  CHECK(rx.counters().dropped_total() == flushed);
}

TEST_CASE("While all traffic is dropped no sender waits", "[session][full]") {
  const auto session = Session::open(loopback_config(32, 200, 256));
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  Sending sending(tx, 6400);
  REQUIRE(stuck_at(tx, 256) == 256);
  rx.set_drop_all(true);
  REQUIRE(sending.done());
  REQUIRE(tx.wait_idle(LONG_NS));
  rx.set_drop_all(false);
  CHECK(dropped_as(rx.counters(), DropReason::FILTERED) == 6400);
  REQUIRE(send_frames(tx, 5000, 7000, 32));
  require_all(receive_numbers(rx, 32), 32, 7000);
}

TEST_CASE("A sender that waits holds up no other queue of its worker", "[session][full]") {
  auto config = loopback_config(32, 200, 256);
  InterfaceConfig second = config.ifs_[0];
  second.name_ = "port1";
  second.address_ = "loopback1";
  for (auto& flow : second.rx_.flows_) {
    flow.name_ += "b";
    flow.id_ += 10;
  }
  MemoryRegionConfig region = config.mrs_.at("rx_frames");
  region.name_ = "more_frames";
  config.mrs_.emplace(region.name_, region);
  region.name_ = "more_out";
  config.mrs_.emplace(region.name_, region);
  for (auto& queue : second.rx_.queues_) queue.common_.mrs_ = {"more_frames"};
  second.tx_.queues_[0].common_.mrs_ = {"more_out"};
  config.ifs_.push_back(second);
  const auto session = Session::open(config);
  Sending stuck(session->tx_queue(0, 0), 6400);
  stuck_at(session->tx_queue(0, 0), 256);
  Sending sending(session->tx_queue(1, 0), 3200);
  require_all(receive_numbers(session->rx_queue(1, 0), 3200), 3200);
  REQUIRE(sending.done());
  require_all(receive_numbers(session->rx_queue(0, 0), 6400), 6400);
}

TEST_CASE("Open bursts of several queues do not keep all buffers from a sender",
          "[session][full]") {
  auto config = loopback_config(64, 0, 96);
  const auto session = Session::open(config);
  TxQueue& tx = session->tx_queue(0, 0);
  const std::uint64_t bufs = session->config().mrs_.at("rx_frames").num_bufs_;
  REQUIRE(bufs < 127);
  // No burst of either queue fills up before the buffers run out.
  REQUIRE(send_frames(tx, 5001, 0, static_cast<std::uint32_t>(bufs - 63)));
  Sending sending(tx, 128);
  RxQueue& rx = session->rx_queue(0, 0);
  auto numbers = receive_numbers(rx, 100);
  REQUIRE(sending.done());
  REQUIRE(tx.wait_idle(LONG_NS));
  session->close();
  const auto rest = receive_numbers(rx, 128 - numbers.size());
  numbers.insert(numbers.end(), rest.begin(), rest.end());
  require_all(numbers, 128);
}

TEST_CASE("Senders that have all buffers of the receiver's region get through", "[session][full]") {
  SECTION("packets change hands") {
    const auto session = Session::open(one_region(256));
    TxQueue& tx = session->tx_queue(0, 0);
    Sending sending(tx, 3200);
    CHECK(stuck_at(tx, 256) == 256);
    require_all(receive_numbers(session->rx_queue(0, 0), 3200), 3200);
    REQUIRE(sending.done());
    CHECK(session->rx_queue(0, 0).counters().dropped_total() == 0);
    session->close();
    CHECK(session->memory()->regions.at("tx_frames")->available() == 256);
  }
  SECTION("segments are cut as the receiver wants them") {
    NetworkConfig config = one_region(256);
    add_region(config, "heads", "rx_frames", 64);
    for (auto& queue : config.ifs_[0].rx_.queues_) {
      queue.common_.mrs_ = {"heads", "tx_frames"};
      queue.common_.split_boundary_ = 50;
    }
    config.ifs_[0].tx_.queues_[0].common_.mrs_ = {"heads", "tx_frames"};
    const auto session = Session::open(config);
    TxQueue& tx = session->tx_queue(0, 0);
    const auto frame = udp_frame(5000, 9, 300);
    for (const std::uint32_t first : {42U, 50U, 64U}) {
      Burst* burst = nullptr;
      REQUIRE(tx.allocate(1, &burst) == Status::SUCCESS);
      std::memcpy(burst->pkts[0][0], frame.data(), first);
      std::memcpy(burst->pkts[1][0], frame.data() + first, 300 - first);
      burst->pkt_lens[0][0] = first;
      burst->pkt_lens[1][0] = 300 - first;
      REQUIRE(tx.send(burst) == Status::SUCCESS);
      Burst* got = nullptr;
      RxQueue& rx = session->rx_queue(0, 0);
      for (int i = 0; i < 1000 && (got = rx.receive()) == nullptr; ++i) rx.wait(10'000'000);
      REQUIRE(got != nullptr);
      REQUIRE(got->pkt_lens[0][0] == 50);
      REQUIRE(got->pkt_lens[1][0] == 250);
      CHECK(std::memcmp(got->pkts[0][0], frame.data(), 50) == 0);
      CHECK(std::memcmp(got->pkts[1][0], frame.data() + 50, 250) == 0);
      got->release();
    }
    session->close();
    for (const auto& [name, region] : session->memory()->regions)
      CHECK(region->available() == region->config().num_bufs_);
  }
  SECTION("where the regions are not the same, packets are dropped and counted") {
    NetworkConfig config = one_region(256);
    MemoryRegionConfig heads = config.mrs_.at("rx_frames");
    heads.name_ = "heads";
    config.mrs_.emplace(heads.name_, heads);
    for (auto& queue : config.ifs_[0].rx_.queues_) {
      queue.common_.mrs_ = {"heads", "tx_frames"};
      queue.common_.split_boundary_ = 42;
    }
    const auto session = Session::open(config);
    TxQueue& tx = session->tx_queue(0, 0);
    REQUIRE(send_frames(tx, 5000, 0, 3200));
    REQUIRE(tx.wait_idle(LONG_NS));
    session->close();
    RxQueue& rx = session->rx_queue(0, 0);
    const auto taken = receive_numbers(rx, rx.counters().held);
    CHECK(rx.counters().received == 3200);
    CHECK(dropped_as(rx.counters(), DropReason::NO_PACKET_BUFFER) == 3200 - taken.size());
  }
}

TEST_CASE("Open bursts that hold the buffers of their senders are handed over", "[session][full]") {
  NetworkConfig config = one_region(128);
  for (auto& queue : config.ifs_[0].rx_.queues_) {
    queue.common_.batch_size_ = 64;
    queue.timeout_us_ = 0;
  }
  const auto session = Session::open(config);
  // Two partly filled bursts leave fewer buffers than a sender requests.
  constexpr std::uint32_t COUNT = 1000;
  std::atomic<bool> sent{true};
  std::thread sender([&] {
    for (std::uint32_t i = 0; i < COUNT && sent; i += 4) {
      const auto port = static_cast<std::uint16_t>(5000 + i / 4 % 2);
      sent = send_frames(session->tx_queue(0, 0), port, i, 4);
    }
  });
  std::size_t taken = 0;
  const std::uint64_t end = monotonic_ns() + static_cast<std::uint64_t>(LONG_NS);
  // The last bursts stay open.
  while (taken < COUNT - 128 && monotonic_ns() < end) {
    for (int queue = 0; queue < 2; ++queue) {
      while (Burst* burst = session->rx_queue(0, queue).receive()) {
        taken += burst->num_packets();
        burst->release();
      }
    }
    std::this_thread::yield();
  }
  sender.join();
  CHECK(sent);
  CHECK(taken >= COUNT - 128);
  CHECK(session->tx_queue(0, 0).counters().dropped_total() == 0);
}

TEST_CASE("A receiver that goes and another that comes lose nothing between them",
          "[session][full]") {
  const auto session = Session::open(loopback_config(32, 200, 256));
  RxQueue& rx = session->rx_queue(0, 0);
  Sending sending(session->tx_queue(0, 0), 6400);
  std::vector<std::uint32_t> numbers;
  for (int turn = 0; turn < 10; ++turn) {
    std::thread([&] {
      const auto some = receive_numbers(rx, 640);
      numbers.insert(numbers.end(), some.begin(), some.end());
    }).join();
    stuck_at(session->tx_queue(0, 0), 1);
  }
  REQUIRE(sending.done());
  REQUIRE(numbers.size() <= 6400);
  const auto rest = receive_numbers(rx, 6400 - numbers.size());
  numbers.insert(numbers.end(), rest.begin(), rest.end());
  require_all(numbers, 6400);
}
