// Queues without threads, where the caller waits and polls.
#include <pthread.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <csignal>
#include <thread>

#include "session/workers.h"

using namespace daqiri;

namespace {

constexpr std::uint64_t HOUR = 3'600'000'000'000;
constexpr std::int64_t LONG = 20'000'000'000;

/// Receives nothing and accepts all packets to send.
class Nothing final : public PortIo {
 public:
  std::uint32_t receive(RxQueue&) noexcept override { return 0; }
  TransmitResult transmit(TxQueue&, Burst&, std::uint32_t, std::uint32_t count) noexcept override {
    return {.sent = count};
  }
  [[nodiscard]] std::shared_ptr<const LinkLayer> link_layer() const override { return nullptr; }
};

/// Interrupts the calling thread repeatedly.
class Signals {
 public:
  Signals() {
    struct sigaction action{};
    action.sa_handler = [](int) {};
    sigaction(SIGUSR1, &action, &before_);
    thread_ = std::jthread([to = pthread_self()](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        pthread_kill(to, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    thread_ = {};
    sigaction(SIGUSR1, &before_, nullptr);
  }

 private:
  struct sigaction before_{};
  std::jthread thread_;
};

template <typename Config>
Config direct_queue() {
  Config config;
  config.poll_mode_ = QueuePollMode::DIRECT;
  config.common_.batch_size_ = 64;
  config.common_.mrs_ = {"buffers"};
  return config;
}

struct Bench {
  Bench() {
    MemoryRegionConfig region;
    region.name_ = "buffers";
    region.num_bufs_ = 64;
    region.buf_size_ = 256;
    memory->regions.emplace("buffers", memory::MemoryRegion::allocate(region));
    memory->tx_pool = std::make_unique<BurstPool>(4, 64, 1, true);
  }

  std::shared_ptr<SessionMemory> memory{std::make_shared<SessionMemory>()};
  Nothing io;
};

}  // namespace

TEST_CASE("a signal ends the wait for packets of a direct queue", "[direct]") {
  Bench bench;
  RxQueue queue(InterfaceConfig{}, direct_queue<RxQueueConfig>(), 4, bench.memory);
  Poller poller(false);
  poller.add(bench.io, queue);
  const Signals signals;
  const std::uint64_t end = monotonic_ns() + LONG;
  bool interrupted = false;
  while (!interrupted && monotonic_ns() < end) interrupted = !queue.wait(LONG);
  CHECK(interrupted);
  poller.stop();
  CHECK(queue.closed());
}

TEST_CASE("a signal ends the wait for launch times and for buffers of a direct queue", "[direct]") {
  Bench bench;
  TxQueue queue(InterfaceConfig{}, direct_queue<TxQueueConfig>(), 4, bench.memory);
  Transmitter worker{Clock{}};
  worker.add(bench.io, queue);
  Burst* burst = nullptr;
  REQUIRE(queue.allocate(64, &burst) == Status::SUCCESS);
  for (int i = 0; i < 64; ++i) burst->timestamps[i] = realtime_ns() + HOUR;
  REQUIRE(queue.send(burst) == Status::SUCCESS);
  const Signals signals;
  const std::uint64_t end = monotonic_ns() + LONG;
  CHECK_FALSE(queue.wait_idle(LONG));
  CHECK(monotonic_ns() < end);
  bool interrupted = false;
  while (!interrupted && monotonic_ns() < end) interrupted = !queue.wait_free(LONG);
  CHECK(interrupted);
  worker.stop();
  CHECK(queue.counters().held == 0);
}
