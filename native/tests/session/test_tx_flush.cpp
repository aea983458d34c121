// Flushing a transmit queue: unsent packets are dropped and counted, and sending continues.
#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "daqiri/error.h"
#include "session/loopback_config.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint64_t HOUR_NS = 3'600'000'000'000;

std::uint64_t flushed(const TxQueue& tx) {
  return tx.counters().dropped[static_cast<std::size_t>(DropReason::FLUSHED)];
}

bool all_free(const Session& session) {
  for (const auto& [name, region] : session.memory()->regions) {
    if (region->available() != region->config().num_bufs_) return false;
  }
  return true;
}

/// Requires that `count` frames, numbered from `first`, arrive and nothing else.
void require_next(Session& session, std::uint32_t first, std::uint32_t count) {
  REQUIRE(send_frames(session.tx_queue(0, 0), 5000, first, count));
  const auto numbers = receive_numbers(session.rx_queue(0, 0), count);
  REQUIRE(numbers.size() == count);
  for (std::uint32_t i = 0; i < count; ++i) REQUIRE(numbers[i] == first + i);
}

}  // namespace

TEST_CASE("A flush drops what a full receiver holds back, and both queues go on",
          "[session][txflush]") {
  const auto session = Session::open(loopback_config(32, 200, 256));
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  // The receiver has buffers for 256 frames, and the sender for another 256.
  REQUIRE(send_frames(tx, 5000, 0, 512));
  while (tx.counters().sent < 256) std::this_thread::yield();
  REQUIRE(tx.counters().held == 256);
  while (tx.held_up_by().empty()) std::this_thread::yield();

  CHECK(tx.flush() == 256);
  const TxSnapshot counters = tx.counters();
  CHECK(counters.submitted == 512);
  CHECK(counters.sent == 256);
  CHECK(counters.held == 0);
  CHECK(counters.dropped_total() == 256);
  CHECK(flushed(tx) == 256);
  CHECK(tx.held_up_by().empty());
  CHECK(session->memory()->regions.at("tx_frames")->available() == 256);

  const auto numbers = receive_numbers(rx, 256);
  REQUIRE(numbers.size() == 256);
  CHECK(numbers.back() == 255);
  require_next(*session, 1000, 200);
  CHECK(flushed(tx) == 256);
}

TEST_CASE("A flush of both sides leaves nothing of what was sent", "[session][txflush]") {
  const auto session = Session::open(loopback_config(32, 0, 256));
  TxQueue& tx = session->tx_queue(0, 0);
  REQUIRE(send_frames(tx, 5000, 0, 512));
  tx.flush();
  session->rx_queue(0, 0).request_flush();
  CHECK(all_free(*session));
  require_next(*session, 5000, 64);
}

TEST_CASE("A flush drops packets whose launch time is far", "[session][txflush]") {
  const auto session = Session::open(loopback_config());
  TxQueue& tx = session->tx_queue(0, 0);
  CHECK(tx.flush() == 0);
  REQUIRE(send_frames(tx, 5000, 0, 200, tx.clock()() + HOUR_NS));
  CHECK(tx.counters().held == 200);
  CHECK(tx.flush() == 200);
  CHECK(tx.counters().held == 0);
  CHECK(all_free(*session));
  CHECK(tx.wait_idle(0));
  require_next(*session, 300, 100);
  CHECK(tx.flush() == 0);
}

TEST_CASE("A flush keeps what was sent before, and drops the rest of a burst",
          "[session][txflush]") {
  const auto session = Session::open(loopback_config());
  TxQueue& tx = session->tx_queue(0, 0);
  Burst* burst = nullptr;
  REQUIRE(tx.allocate(10, &burst) == Status::SUCCESS);
  for (std::uint32_t i = 0; i < 10; ++i) {
    const auto frame = udp_frame(5000, i);
    std::memcpy(burst->pkts[0][i], frame.data(), frame.size());
    burst->pkt_lens[0][i] = static_cast<std::uint32_t>(frame.size());
    burst->timestamps[i] = i < 4 ? 0 : tx.clock()() + HOUR_NS;
  }
  REQUIRE(tx.send(burst) == Status::SUCCESS);
  while (tx.counters().sent < 4) std::this_thread::yield();
  CHECK(tx.flush() == 6);
  CHECK(receive_numbers(session->rx_queue(0, 0), 4) == std::vector<std::uint32_t>{0, 1, 2, 3});
  require_next(*session, 10, 10);
}

TEST_CASE("A waiting sender goes on after a flush", "[session][txflush]") {
  const auto session = Session::open(loopback_config(32, 0, 256));
  TxQueue& tx = session->tx_queue(0, 0);
  std::atomic<bool> done{false};
  std::jthread sender([&] {
    CHECK(send_frames(tx, 5000, 0, 512 + 64));
    done = true;
  });
  while (tx.counters().submitted < 512 || tx.counters().sent < 256) std::this_thread::yield();
  CHECK_FALSE(done);
  CHECK(tx.flush() >= 256);
  sender.join();
  tx.flush();
  CHECK(tx.counters().held == 0);
}

TEST_CASE("Flushes while others send lose and count nothing twice", "[session][txflush]") {
  const auto session = Session::open(loopback_config(16, 100, 512));
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> told{0};
  std::atomic<std::uint64_t> unbalanced{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        while (!stop) send_frames(tx, 5000, 0, 64);
      });
      threads.emplace_back([&] {
        while (!stop) told += tx.flush();
      });
    }
    threads.emplace_back([&] {
      while (!stop) {
        const TxSnapshot counters = tx.counters();
        if (!balanced(counters) || counters.held > counters.submitted) ++unbalanced;
      }
    });
    threads.emplace_back([&] {
      while (!stop) {
        if (Burst* burst = rx.receive(); burst != nullptr) burst->release();
      }
    });
    const std::uint64_t end = monotonic_ns() + 30'000'000'000;
    while ((flushed(tx) < 2000 || tx.counters().sent < 2000) && monotonic_ns() < end)
      std::this_thread::yield();
    stop = true;
  }
  told += tx.flush();
  const TxSnapshot counters = tx.counters();
  CHECK(counters.held == 0);
  CHECK(unbalanced == 0);
  CHECK(told == flushed(tx));
  CHECK(flushed(tx) >= 2000);
  rx.request_flush();
  CHECK(rx.counters().received == counters.sent);
  CHECK(all_free(*session));
}

TEST_CASE("A queue that is closed cannot be flushed, and closing ends a flush",
          "[session][txflush]") {
  const auto session = Session::open(loopback_config());
  TxQueue& tx = session->tx_queue(0, 0);
  std::atomic<bool> refused{false};
  std::jthread flushing([&] {
    try {
      for (;;) tx.flush();
    } catch (const Error& error) {
      refused = error.status() == Status::NOT_READY;
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  session->close();
  flushing.join();
  CHECK(refused);
}
