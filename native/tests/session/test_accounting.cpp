#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "session/loopback_config.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// A thread that checks both identities while packets are sent.
class Auditor {
 public:
  explicit Auditor(Session& session)
      : thread_([this, &session] {
          while (!stop_.load()) {
            for (int queue = 0; queue < 2; ++queue) {
              const RxSnapshot rx = session.rx_queue(0, queue).counters();
              if (!balanced(rx) || rx.held > rx.received) wrong_ = true;
            }
            const TxSnapshot tx = session.tx_queue(0, 0).counters();
            if (!balanced(tx) || tx.held > tx.submitted) wrong_ = true;
            ++looks_;
          }
        }) {}
  ~Auditor() { finish(); }
  bool finish() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return !wrong_ && looks_ > 0;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<bool> wrong_{false};
  std::atomic<long> looks_{0};
  std::thread thread_;
};

}  // namespace

TEST_CASE("Nothing is lost unseen under overload with a slow consumer", "[session][accounting]") {
  auto config = loopback_config(32, 200, 256);
  config.common_.loopback_drops_ = true;
  config.rx_meta_buffers_ = 8;
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  Auditor auditor(*session);
  std::atomic<bool> sending{true};
  std::uint64_t got = 0;
  std::thread consumer([&] {
    while (sending.load() || rx.counters().held > 0) {
      Burst* burst = rx.receive();
      if (burst == nullptr) {
        rx.wait(1'000'000);
        continue;
      }
      got += burst->num_packets();
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      burst->release();
    }
  });
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 20000));
  REQUIRE(session->tx_queue(0, 0).wait_idle(5'000'000'000));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  sending = false;
  consumer.join();
  session->close();
  while (Burst* burst = rx.receive()) {
    got += burst->num_packets();
    burst->release();
  }
  REQUIRE(auditor.finish());
  const RxSnapshot counters = rx.counters();
  REQUIRE(counters.received == 20000);
  REQUIRE(counters.delivered == got);
  REQUIRE(counters.held == 0);
  REQUIRE(balanced(counters));
  REQUIRE(counters.dropped_total() == 20000 - got);
}

TEST_CASE("An exhausted pool drops the newest packets and recovers", "[session][accounting]") {
  auto config = loopback_config(64, 200, 96);
  config.common_.loopback_drops_ = true;
  const auto session = Session::open(config);
  const std::uint64_t bufs = session->config().mrs_.at("rx_frames").num_bufs_;
  RxQueue& rx = session->rx_queue(0, 0);
  TxQueue& tx = session->tx_queue(0, 0);
  REQUIRE(send_frames(tx, 5000, 0, static_cast<std::uint32_t>(3 * bufs)));
  REQUIRE(tx.wait_idle(5'000'000'000));
  std::vector<Burst*> held;
  for (int i = 0; i < 50; ++i) {
    rx.wait(2'000'000);
    while (Burst* burst = rx.receive()) held.push_back(burst);
  }
  std::uint64_t packets = 0;
  for (const Burst* burst : held) packets += burst->num_packets();
  REQUIRE(packets <= bufs);
  RxSnapshot counters = rx.counters();
  REQUIRE(counters.dropped[static_cast<std::size_t>(DropReason::NO_PACKET_BUFFER)] > 0);
  REQUIRE(balanced(counters));
  REQUIRE(number_of(*held.front(), 0) == 0);
  for (Burst* burst : held) burst->release();
  REQUIRE(send_frames(tx, 5000, 9000, 64));
  const auto numbers = receive_numbers(rx, 64);
  REQUIRE(numbers.size() == 64);
  session->close();
  counters = rx.counters();
  REQUIRE(counters.received == 3 * bufs + 64);
  REQUIRE(balanced(counters));
  REQUIRE(session->memory()->regions.at("rx_frames")->available() == bufs);
}

TEST_CASE("Without bursts to carry them, packets are dropped as no_burst_buffer",
          "[session][accounting]") {
  auto config = loopback_config(64, 0, 2048);
  config.common_.loopback_drops_ = true;
  config.rx_meta_buffers_ = 2;
  const auto session = Session::open(config);
  RxQueue& rx = session->rx_queue(0, 0);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 640));
  REQUIRE(session->tx_queue(0, 0).wait_idle(5'000'000'000));
  session->close();
  const RxSnapshot counters = rx.counters();
  REQUIRE(counters.received == 640);
  REQUIRE(counters.held == 128);
  REQUIRE(counters.dropped_total() == 512);
  REQUIRE(balanced(counters));
}

TEST_CASE("Sessions come and go without leaving buffers behind", "[session][accounting]") {
  for (int i = 0; i < 20; ++i) {
    const auto session = Session::open(loopback_config(16, 100, 256));
    REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 100));
    if (i % 2 == 0) receive_numbers(session->rx_queue(0, 0), 50);
    session->close();
    RxQueue& rx = session->rx_queue(0, 0);
    while (Burst* burst = rx.receive()) burst->release();
    for (const auto& [name, region] : session->memory()->regions) {
      INFO(name);
      REQUIRE(region->available() == region->config().num_bufs_);
    }
  }
}

TEST_CASE("What is sent while the session closes leaves, is dropped, or is refused",
          "[session][accounting]") {
  for (int round = 0; round < 100; ++round) {
    auto config = loopback_config(1, 100, 256);
    // Else a full receiver holds up the sender, and the close waits for it.
    config.common_.loopback_drops_ = round % 10 != 0;
    const auto session = Session::open(config);
    TxQueue& tx = session->tx_queue(0, 0);
    std::atomic<bool> sending{false};
    std::thread sender([&] {
      Burst* burst = nullptr;
      for (int i = 0; i < 100'000; ++i) {
        const Status allocated = tx.allocate(1, &burst);
        if (allocated == Status::NOT_READY) return;
        if (allocated != Status::SUCCESS) continue;
        burst->pkt_lens[0][0] = 60;
        const Status sent = tx.send(burst);
        sending = true;
        if (sent == Status::NOT_READY) {
          burst->release();
          return;
        }
      }
    });
    while (!sending) std::this_thread::yield();
    session->close();
    sender.join();
    REQUIRE(tx.counters().held == 0);
    REQUIRE(balanced(tx.counters()));
    REQUIRE(session->memory()->regions.at("tx_frames")->available() == 256);
    REQUIRE(session->memory()->tx_pool->available() == session->memory()->tx_pool->count());
  }
}
