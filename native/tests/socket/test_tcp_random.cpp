// Random TCP servers under load, with peers that end, reset and reconnect, and all kinds of
// consumers: nothing is dropped, received data is correct, and the counters balance at any time.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "session/burst_consumer.h"
#include "socket/tcp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// Bytes of a stream, beginning with its number.
Bytes life(std::uint32_t number) {
  Bytes bytes = stream_of(sizeof number + (number * 2654435761U >> 8U) % 60'000, number);
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

class Scenario {
 public:
  explicit Scenario(unsigned seed) : chance_(seed) {
    TcpOptions options;
    options.batch = static_cast<int>(number(1, 32));
    options.timeout_us = number(0, 2) * 500;
    options.num_bufs = number(2, 200);
    options.buf_size = std::array{64U, 300U, 2048U, 20'000U}[number(0, 3)];
    options.rx_queues = static_cast<int>(number(1, 3));
    NetworkConfig config = tcp_server("127.0.0.1", port_, options);
    config.log_level_ = LogLevel::OFF;
    config.rx_meta_buffers_ = number(1, 16);
    session_ = Session::open(config);
    streams_.resize(queues().size());
  }

  /// Returns the first problem; empty if none.
  std::string run() {
    std::vector<std::jthread> peers;
    std::vector<std::jthread> others;
    const std::uint32_t count = number(1, 4);
    for (std::uint32_t p = 0; p < count; ++p)
      peers.emplace_back([this, p, seed = chance_()] { live(p * 10, seed); });
    bool all_read = true;
    for (const auto& rx : queues()) {
      const auto manner = static_cast<Manner>(number(0, 3));
      all_read = all_read && manner <= Manner::SLOW;
      others.emplace_back([this, &rx, manner] {
        consume(*rx, manner, [this](const RxQueue& q, const Burst& burst) { take(q, burst); });
      });
    }
    others.emplace_back([this] { audit(); });
    if (all_read && number(0, 3) > 0) {
      for (auto& peer : peers) peer.join();
      peers.clear();
      if (broken_ == 0 && !eventually([this] { return received_bytes() == sent_; }))
        note("what was sent does not arrive");
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(number(0, 20'000)));
    }
    session_->close();
    done_ = true;
    for (auto& peer : peers) peer.join();
    for (auto& other : others) other.join();
    wait_until_idle();
    return problem_.load() == nullptr ? "" : problem_.load();
  }

  [[nodiscard]] std::uint64_t received_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& rx : queues()) sum += rx->counters().received_bytes;
    return sum;
  }

 private:
  using Streams = std::map<std::uintptr_t, Bytes>;

  [[nodiscard]] const std::vector<std::unique_ptr<RxQueue>>& queues() const {
    return session_->port(0).rx;
  }
  std::uint32_t number(std::uint32_t first, std::uint32_t last) {
    return std::uniform_int_distribution<std::uint32_t>(first, last)(chance_);
  }
  void note(const char* what) {
    const char* none = nullptr;
    problem_.compare_exchange_strong(none, what);
  }
  void unless(bool holds, const char* what) {
    if (!holds) note(what);
  }

  /// A peer: several connections, one after the other.
  void live(std::uint32_t first, unsigned seed) {
    std::minstd_rand chance(seed);
    const std::uint32_t lives = 1 + chance() % 3;
    for (std::uint32_t i = 0; i < lives; ++i) {
      const Bytes bytes = life(first + i);
      try {
        Stream stream = Stream::connect_to("127.0.0.1", port_);
        if (!stream.send(bytes)) return;
        sent_ += bytes.size();
        if (chance() % 3 != 0) continue;
        ++broken_;
        stream.reset();
      } catch (const std::runtime_error&) {
        return;  // the session was closed meanwhile
      }
    }
  }

  /// Called by one thread per queue at a time.
  void take(const RxQueue& rx, const Burst& burst) {
    Bytes& stream = streams_[rx.id()][burst.connection_id];
    for (std::uint32_t i = 0; i < burst.num_packets(); ++i) {
      const Bytes packet = bytes_of(burst, i);
      unless(!packet.empty(), "a packet is empty");
      stream.insert(stream.end(), packet.begin(), packet.end());
    }
  }

  void audit() {
    while (!done_) {
      for (const auto& rx : queues()) {
        const RxSnapshot now = rx->counters();
        unless(balanced(now), "received is not delivered + held + dropped");
        unless(now.dropped_total() == 0, "TCP drops");
      }
      std::this_thread::yield();
    }
  }

  /// Checks one stream, or the rests of several streams of the same address.
  void check(const Bytes& stream) {
    for (auto at = stream.begin(); stream.end() - at >= 4;) {
      std::uint32_t name = 0;
      std::memcpy(&name, &*at, sizeof name);
      if (name >= 40) return note("bytes arrive that nobody sent");
      const Bytes sent = life(name);
      const auto same = std::mismatch(at, stream.end(), sent.begin(), sent.end()).first;
      if (same - at < 4) return note("a stream is not as it was sent");
      at = same;
    }
  }

  void wait_until_idle() {
    for (const auto& rx : queues()) {
      while (Burst* burst = rx->receive()) {
        take(*rx, *burst);
        burst->release();
      }
      const RxSnapshot counters = rx->counters();
      unless(balanced(counters) && counters.held == 0, "a closed queue holds packets");
      std::uint64_t taken = 0;
      for (const auto& [connection, stream] : streams_[rx->id()]) {
        taken += stream.size();
        check(stream);
      }
      unless(counters.received_bytes == taken, "bytes that were received are not delivered");
    }
    const SessionMemory& memory = *session_->memory();
    for (const auto& [name, region] : memory.regions)
      unless(region->available() == region->config().num_bufs_, "packet buffers are lost");
    // Each queue may keep one.
    for (const auto& pool : memory.rx_pools)
      unless(pool->available() + 1 >= pool->count(), "receive bursts are lost");
  }

  std::mt19937 chance_;
  std::uint16_t port_{free_tcp_port("127.0.0.1")};
  std::shared_ptr<Session> session_;
  std::atomic<const char*> problem_{nullptr};
  std::atomic<bool> done_{false};
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint32_t> broken_{0};
  /// Indexed by queue.
  std::vector<Streams> streams_;
};

}  // namespace

TEST_CASE("the accounts of TCP hold for random configurations under load", "[tcp][accounting]") {
  std::uint64_t received = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    Scenario scenario(seed);
    REQUIRE(scenario.run() == "");
    received += scenario.received_bytes();
  }
  REQUIRE(received > 0);
}
