// Random configurations under full load, with all kinds of consumers: received packets are complete
// and in order, the counters balance at any time, and all buffers are returned.
#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "daqiri/error.h"
#include "session/burst_consumer.h"
#include "session/loopback_config.h"
#include "session/random_config.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint32_t FRAMES = 4000;
constexpr unsigned SENDER_SHIFT = 24;
/// Length of the shortest frame that udp_frame makes.
constexpr std::uint32_t SHORTEST = 46;

/// The first problem of any thread, because checks of Catch2 are for one thread only.
class Problem {
 public:
  void note(const char* what) {
    const char* none = nullptr;
    first_.compare_exchange_strong(none, what);
  }
  void unless(bool holds, const char* what) {
    if (!holds) note(what);
  }
  [[nodiscard]] std::string text() const {
    const char* first = first_.load();
    return first == nullptr ? "" : first;
  }

 private:
  std::atomic<const char*> first_{nullptr};
};

class Scenario {
 public:
  explicit Scenario(unsigned seed) : chance_(seed) {
    NetworkConfig config = random_config(pick(), 2);
    config.common_.loopback_drops_ = number(0, 1) == 1;
    session_ = Session::open(config);
  }

  [[nodiscard]] std::uint64_t delivered() const {
    return std::accumulate(accounts_.begin(), accounts_.end(), std::uint64_t{0},
                           [](auto sum, const Account& a) { return sum + a.delivered; });
  }

  std::string run() {
    std::vector<std::thread> senders;
    std::vector<std::thread> others;
    for (const auto& tx : port().tx)
      senders.emplace_back([this, &tx, seed = chance_()] { send(*tx, seed); });
    for (const auto& rx : port().rx) {
      // If senders wait, they would wait forever for a consumer that does not receive or release.
      const auto manner = static_cast<Manner>(number(0, waits() ? 1 : 4));
      others.emplace_back([this, &rx, manner] {
        consume(*rx, manner, [this](const RxQueue& q, const Burst& burst) { take(q, burst); });
      });
    }
    others.emplace_back([this] { audit(); });
    const auto disturb = number(0, 3);
    others.emplace_back([this, disturb, seed = chance_()] { interfere(disturb, seed); });
    if (number(0, 2) > 0) {
      for (auto& sender : senders) sender.join();
      senders.clear();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(number(0, 5000)));
    }
    session_->close();
    done_ = true;
    for (auto& sender : senders) sender.join();
    for (auto& other : others) other.join();
    wait_until_idle();
    return problem_.text();
  }

 private:
  struct Account {
    std::uint64_t delivered{0};
    /// Number after the last frame of each sender.
    std::array<std::uint32_t, 2> next{};
  };

  std::uint32_t number(std::uint32_t first, std::uint32_t last) {
    return std::uniform_int_distribution<std::uint32_t>(first, last)(chance_);
  }
  Pick pick() {
    return [this](std::uint32_t first, std::uint32_t last) { return number(first, last); };
  }
  [[nodiscard]] const Port& port() const { return session_->port(0); }
  [[nodiscard]] bool waits() const { return !session_->config().common_.loopback_drops_; }

  static std::vector<std::uint8_t> frame(std::uint32_t number, std::uint32_t longest) {
    // The content depends only on the number, so that the receiver can check it.
    const std::uint32_t mixed = number * 2654435761U;
    const auto to = static_cast<std::uint16_t>(FIRST_PORT + (mixed >> 28U) % 9);
    return udp_frame(to, number, SHORTEST + (mixed >> 8U) % (longest - SHORTEST + 1));
  }

  void send(TxQueue& tx, unsigned seed) {
    std::minstd_rand chance(seed);
    // Half of the runs send at full speed, the others slowly enough for a consumer.
    const bool gentle = chance() % 2 == 0;
    const std::uint64_t end = monotonic_ns() + 30'000'000'000ULL;
    std::uint32_t next = 0;
    while (next < FRAMES) {
      if (gentle) std::this_thread::sleep_for(std::chrono::microseconds(chance() % 200));
      const auto n = static_cast<std::uint32_t>(1 + chance() % tx.batch_size());
      Burst* burst = nullptr;
      const Status status = tx.allocate(n, &burst);
      if (status == Status::NOT_READY) return;
      if (status != Status::SUCCESS) {
        if (monotonic_ns() > end) return problem_.note("a sender waits for buffers for 30 s");
        tx.wait_free(1'000'000);
        continue;
      }
      for (std::uint32_t i = 0; i < n; ++i) {
        const std::uint32_t name = std::uint32_t{tx.id()} << SENDER_SHIFT | (next + i);
        const auto bytes = frame(name, tx.max_packet_size());
        std::memcpy(burst->pkts[0][i], bytes.data(), bytes.size());
        burst->pkt_lens[0][i] = static_cast<std::uint32_t>(bytes.size());
      }
      switch (tx.send(burst)) {
        case Status::SUCCESS:
          next += n;
          submitted_ += n;
          count_matches(tx, next - n, n);
          break;
        case Status::NO_SPACE_AVAILABLE:
          break;
        default:
          burst->release();
          return;
      }
    }
  }

  void count_matches(const TxQueue& tx, std::uint32_t first, std::uint32_t n) {
    const steering::Program program(port().config);
    for (std::uint32_t i = first; i < first + n; ++i) {
      const auto bytes = frame(std::uint32_t{tx.id()} << SENDER_SHIFT | i, tx.max_packet_size());
      const auto length = static_cast<std::uint32_t>(bytes.size());
      const auto view = steering::PacketView::of_frame(bytes.data(), length);
      const std::uint16_t position = program.classify(view).position;
      if (position == steering::NO_FLOW) continue;
      matched_[position] += 1;
      matched_bytes_[position] += length;
    }
  }

  /// Called by one thread per queue at a time.
  void take(const RxQueue& rx, const Burst& burst) {
    Account& account = accounts_[rx.id()];
    account.delivered += burst.num_packets();
    for (std::uint32_t i = 0; i < burst.num_packets(); ++i) {
      std::vector<std::uint8_t> bytes;
      for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
        const auto* data = static_cast<const std::uint8_t*>(burst.pkts[s][i]);
        bytes.insert(bytes.end(), data, data + burst.pkt_lens[s][i]);
      }
      if (bytes.size() < SHORTEST) return problem_.note("a packet is shorter than any sent");
      std::uint32_t name = 0;
      std::memcpy(&name, bytes.data() + 42, sizeof name);
      const std::uint32_t sender = name >> SENDER_SHIFT;
      const std::uint32_t count = name & ((1U << SENDER_SHIFT) - 1);
      if (sender >= port().tx.size()) return problem_.note("a packet is from nobody");
      problem_.unless(bytes == frame(name, port().tx[sender]->max_packet_size()),
                      "a packet is not as it was sent");
      problem_.unless(count >= account.next[sender], "a packet came out of order, or twice");
      account.next[sender] = count + 1;
      const auto verdict = port().steering.program()->classify(
          steering::PacketView::of_frame(bytes.data(), static_cast<std::uint32_t>(bytes.size())));
      problem_.unless(verdict.queue == rx.id() && verdict.flow == burst.flow_ids[i],
                      "a packet is on the wrong queue or of the wrong flow");
    }
  }

  void audit() {
    std::map<std::uint16_t, RxSnapshot> before;
    while (!done_) {
      for (const auto& rx : port().rx) {
        const RxSnapshot now = rx->counters();
        RxSnapshot& last = before[rx->id()];
        problem_.unless(balanced(now), "received is not delivered + held + dropped");
        problem_.unless(now.held <= now.received, "more is held than was received");
        problem_.unless(now.received >= last.received && now.delivered >= last.delivered &&
                            now.dropped_total() >= last.dropped_total(),
                        "a counter went back");
        last = now;
      }
      for (const auto& tx : port().tx) {
        const TxSnapshot now = tx->counters();
        problem_.unless(balanced(now), "submitted is not sent + held + dropped");
        problem_.unless(now.held <= now.submitted, "more is held than was submitted");
      }
      std::this_thread::yield();
    }
  }

  void interfere(std::uint32_t disturb, unsigned seed) {
    if (disturb == 0) return;
    std::minstd_rand chance(seed);
    for (int i = 0; i < 20 && !done_; ++i) {
      const auto& rx = port().rx[chance() % port().rx.size()];
      try {
        if (disturb == 1) {
          rx->request_flush();
        } else {
          rx->set_drop_all(true);
          std::this_thread::sleep_for(std::chrono::microseconds(chance() % 500));
          rx->set_drop_all(false);
        }
      } catch (const Error& error) {
        problem_.unless(error.status() == Status::NOT_READY, "a queue's poller does not answer");
        return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(chance() % 2000));
    }
  }

  void wait_until_idle() {
    std::uint64_t received = 0;
    for (const auto& rx : port().rx) {
      while (Burst* burst = rx->receive()) {
        take(*rx, *burst);
        burst->release();
      }
      const RxSnapshot counters = rx->counters();
      problem_.unless(balanced(counters) && counters.held == 0, "a closed queue holds packets");
      problem_.unless(counters.delivered == accounts_[rx->id()].delivered,
                      "delivered is not what the application got");
      received += counters.received;
      for (const DropReason lost : {DropReason::NO_PACKET_BUFFER, DropReason::NO_BURST_BUFFER,
                                    DropReason::RING_FULL, DropReason::NIC}) {
        problem_.unless(!waits() || counters.dropped[static_cast<std::size_t>(lost)] == 0,
                        "a packet is lost although its sender could wait");
      }
    }
    std::uint64_t sent = 0;
    std::uint64_t dropped = 0;
    for (const auto& tx : port().tx) {
      const TxSnapshot counters = tx->counters();
      problem_.unless(balanced(counters) && counters.held == 0, "a closed queue has not sent");
      sent += counters.sent;
      dropped += counters.dropped_total();
    }
    problem_.unless(sent + dropped == submitted_,
                    "what was submitted is not what was sent or dropped");
    problem_.unless(received == sent, "what left did not arrive");
    std::uint64_t matched = 0;
    for (std::size_t i = 0; i < port().config.rx_.flows_.size(); ++i) {
      const FlowSnapshot flow = port().steering.counts(i);
      matched += flow.packets;
      problem_.unless(flow.packets <= matched_[i], "a flow has counted what was not sent");
      problem_.unless(
          dropped > 0 || (flow.packets == matched_[i] && flow.bytes == matched_bytes_[i]),
          "a flow has not counted what it matched");
    }
    problem_.unless(matched <= received, "flows have counted what did not arrive");
    const SessionMemory& memory = *session_->memory();
    for (const auto& [name, region] : memory.regions)
      problem_.unless(region->available() == region->config().num_bufs_, "packet buffers are lost");
    for (const auto& pool : memory.rx_pools)
      problem_.unless(pool->available() == pool->count(), "receive bursts are lost");
    problem_.unless(memory.tx_pool->available() == memory.tx_pool->count(),
                    "transmit bursts are lost");
  }

  std::mt19937 chance_;
  std::shared_ptr<Session> session_;
  Problem problem_;
  std::atomic<bool> done_{false};
  std::atomic<std::uint64_t> submitted_{0};
  /// Submitted packets by flow.
  std::array<std::atomic<std::uint64_t>, 4> matched_{};
  std::array<std::atomic<std::uint64_t>, 4> matched_bytes_{};
  /// By id of the receive queue.
  std::array<Account, 3> accounts_{};
};

}  // namespace

TEST_CASE("The accounts hold for random configurations under load", "[session][accounting]") {
  std::uint64_t delivered = 0;
  for (unsigned seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    Scenario scenario(seed);
    REQUIRE(scenario.run() == "");
    delivered += scenario.delivered();
  }
  REQUIRE(delivered > 0);
}
