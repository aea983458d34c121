// Passing frames to a queue of another poller, with a ring that does not use the kernel.
#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "engines/packet/hand_over.h"
#include "timing/clock.h"

using namespace daqiri;
using packet::Frame;
using packet::HandOver;

namespace {

/// Slots of 64 bytes, reused as soon as they are free. Each frame begins with its number.
class Slots final : public packet::FrameRing {
 public:
  static constexpr std::uint32_t COUNT = 1024;

  Slots() : FrameRing("slots", 64, memory::Place::HOST) {}

  /// A new frame, when its slot is free.
  Frame next() {
    const std::uint32_t slot = number_ % COUNT;
    while (uses_[slot].load(std::memory_order_acquire) != 0) std::this_thread::yield();
    Frame frame;
    frame.data = memory_[slot].data();
    frame.length = frame.wire_length = 64;
    frame.time = realtime_ns();
    std::memcpy(frame.data, &number_, sizeof number_);
    return frame;
  }
  [[nodiscard]] std::uint32_t kept() const {
    std::uint32_t sum = 0;
    for (const auto& uses : uses_) sum += uses.load();
    return sum;
  }

  [[nodiscard]] std::vector<int> fds() const override { return {}; }
  [[nodiscard]] std::string path() const override { return {}; }
  [[nodiscard]] std::uint64_t gathers_ns() const noexcept override { return 0; }
  Frame peek() noexcept override { return {}; }
  void advance() noexcept override { ++number_; }
  [[nodiscard]] bool worth_keeping() const noexcept override { return room; }
  [[nodiscard]] bool has_room() const noexcept override { return room; }
  std::uint32_t keep(std::uint32_t times) noexcept override {
    uses_[number_ % COUNT].fetch_add(times, std::memory_order_relaxed);
    return number_ % COUNT;
  }
  [[nodiscard]] bool waits_for_memory() const noexcept override { return false; }
  std::uint32_t take_drops() noexcept override { return 0; }
  int take_error() noexcept override { return 0; }
  void stop_arrivals() noexcept override {}
  void stop() noexcept override {}
  void give(const std::uint32_t* buffers, std::uint32_t n) noexcept override {
    for (std::uint32_t i = 0; i < n; ++i) uses_[buffers[i]].fetch_sub(1, std::memory_order_acq_rel);
  }

  bool room{true};

 private:
  std::uint32_t number_{0};
  std::array<std::array<std::uint8_t, 64>, COUNT> memory_{};
  std::array<std::atomic<std::uint32_t>, COUNT> uses_{};
};

/// The longest time that a frame can be in a ring before it becomes readable.
constexpr std::uint64_t LATE_NS = 10'000'000'000;

struct Bench {
  explicit Bench(std::uint32_t num_bufs) {
    RxQueueConfig config;
    config.common_.name_ = "rx0";
    config.common_.batch_size_ = 16;
    // Headers, then data.
    config.common_.split_boundary_ = 20;
    for (const char* name : {"heads", "data"}) {
      MemoryRegionConfig region;
      region.name_ = name;
      region.num_bufs_ = num_bufs;
      region.buf_size_ = 64;
      memory->regions.emplace(name, memory::MemoryRegion::allocate(region));
      config.common_.mrs_.emplace_back(name);
    }
    queue = std::make_unique<RxQueue>(InterfaceConfig{}, config, 64, memory);
    queue->share_owner(slots);
    queue->set_poller(doorbell);
    hand_over = std::make_unique<HandOver>(*queue, *slots, LATE_NS);
  }

  void put(const Frame& frame) {
    steering::Verdict verdict;
    verdict.flow = 7;
    hand_over->put(frame, verdict);
    slots->advance();
  }
  void put() { put(slots->next()); }
  std::uint32_t pass() {
    queue->begin_pass(monotonic_ns() + ahead_ns);
    const std::uint32_t seen = hand_over->receive();
    if (queue->starves()) queue->deliver_open();
    queue->end_pass();
    return seen;
  }
  /// Flushes like an application, whose thread waits for the poller.
  void flush() {
    std::atomic<bool> flushed{false};
    std::thread application([&] {
      queue->request_flush();
      flushed = true;
    });
    while (!flushed) pass();
    application.join();
  }
  /// Appends the numbers of waiting packets and releases their bursts.
  void take(std::vector<std::uint32_t>& numbers) {
    while (Burst* burst = queue->receive()) {
      for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
        std::uint32_t number = 0;
        std::memcpy(&number, burst->pkts[0][i], sizeof number);
        numbers.push_back(number);
        right = right && burst->pkt_lens[0][i] == 20 && burst->pkt_lens[1][i] == 44 &&
                burst->flow_ids[i] == 7;
      }
      burst->release();
    }
  }

  std::shared_ptr<SessionMemory> memory{std::make_shared<SessionMemory>()};
  std::shared_ptr<Slots> slots{std::make_shared<Slots>()};
  Doorbell doorbell;
  std::unique_ptr<RxQueue> queue;
  std::unique_ptr<HandOver> hand_over;
  /// Offset of the clock used for passes.
  std::uint64_t ahead_ns{0};
  /// All received packets were intact, apart from their numbers.
  bool right{true};
};

}  // namespace

TEST_CASE("what two threads hand over is delivered in order or counted", "[packet]") {
  constexpr std::uint32_t PACKETS = 200'000;
  const bool reader_copies = GENERATE(false, true);
  Bench bench(256);
  bench.slots->room = !reader_copies;
  std::thread reader([&] {
    for (std::uint32_t i = 0; i < PACKETS; ++i) {
      bench.put();
      if (i % 1000 == 0) bench.hand_over->lose(DropReason::TRUNCATED, 1, 9);
      if (i % 64 == 0) bench.hand_over->wake();
    }
    bench.hand_over->end();
  });
  std::vector<std::uint32_t> numbers;
  std::atomic<bool> closed{false};
  std::thread application([&] {
    while (!closed) bench.take(numbers);
    bench.take(numbers);
  });
  while (bench.hand_over->expects_more()) bench.pass();
  bench.queue->deliver_all();
  bench.queue->end_pass();
  closed = true;
  reader.join();
  application.join();
  const RxSnapshot counters = bench.queue->counters();
  CHECK(counters.received == PACKETS + PACKETS / 1000);
  CHECK(counters.received_bytes == 64 * PACKETS + 9 * (PACKETS / 1000));
  CHECK(counters.dropped[static_cast<std::size_t>(DropReason::TRUNCATED)] == PACKETS / 1000);
  CHECK(counters.received == counters.delivered + counters.dropped_total());
  CHECK(bench.right);
  CHECK(numbers.size() == counters.delivered);
  CHECK(std::ranges::is_sorted(numbers));
  CHECK(std::ranges::adjacent_find(numbers) == numbers.end());
  CHECK(bench.slots->kept() == 0);
  for (int s = 0; s < 2; ++s) CHECK(bench.queue->region(s).available() == 256);
}

TEST_CASE("frames for a poller that is late are lost at their queue only when the way is full",
          "[packet]") {
  Bench bench(8192);
  // The frames are copied, so that nothing waits for the slots.
  bench.slots->room = false;
  for (int i = 0; i < 5000; ++i) bench.put();
  CHECK(bench.queue->counters().received == 0);
  std::vector<std::uint32_t> numbers;
  while (bench.pass() > 0) bench.take(numbers);
  const RxSnapshot counters = bench.queue->counters();
  CHECK(counters.received == 5000);
  CHECK(counters.dropped[static_cast<std::size_t>(DropReason::RING_FULL)] == 5000 - 4096);
  CHECK(counters.dropped_total() == 5000 - 4096);
}

TEST_CASE("what was handed over before a flush is discarded", "[packet]") {
  const bool reader_copies = GENERATE(false, true);
  Bench bench(256);
  bench.slots->room = !reader_copies;
  for (int i = 0; i < 100; ++i) bench.put();
  // The frame has arrived and is not read yet.
  const Frame late = bench.slots->next();
  bench.flush();
  CHECK(bench.queue->counters().dropped[static_cast<std::size_t>(DropReason::FLUSHED)] == 100);
  bench.put(late);
  for (int i = 0; i < 50; ++i) bench.put();
  while (bench.pass() > 0) {
  }
  bench.queue->deliver_open();
  std::vector<std::uint32_t> numbers;
  bench.take(numbers);
  CHECK(numbers.size() == 50);
  CHECK(numbers.front() == 101);
  const RxSnapshot counters = bench.queue->counters();
  CHECK(counters.received == 151);
  CHECK(counters.dropped[static_cast<std::size_t>(DropReason::FLUSHED)] == 101);
  CHECK(counters.dropped_total() == 101);
  CHECK(bench.slots->kept() == 0);
}

TEST_CASE("what came before a flush is discarded however late it is read", "[packet]") {
  Bench bench(256);
  const Frame late = bench.slots->next();
  bench.flush();
  // As if both threads had stopped for a long time.
  bench.ahead_ns = 10 * LATE_NS;
  bench.pass();
  bench.put(late);
  bench.pass();
  bench.hand_over->note_all_read(monotonic_ns() + bench.ahead_ns);
  CHECK(bench.queue->counters().dropped[static_cast<std::size_t>(DropReason::FLUSHED)] == 1);
  // From here on, times do not matter, even if the clock was set back.
  bench.pass();
  Frame other = bench.slots->next();
  other.time = late.time;
  bench.put(other);
  bench.pass();
  bench.queue->deliver_open();
  std::vector<std::uint32_t> numbers;
  bench.take(numbers);
  CHECK(numbers == std::vector<std::uint32_t>{1});
}

TEST_CASE("what nobody takes any more is given back", "[packet]") {
  const bool reader_copies = GENERATE(false, true);
  Bench bench(256);
  bench.slots->room = !reader_copies;
  for (int i = 0; i < 100; ++i) bench.put();
  bench.hand_over->lose(DropReason::KERNEL, 3, 0);
  bench.hand_over->discard_rest();
  const RxSnapshot counters = bench.queue->counters();
  CHECK(counters.received == 103);
  CHECK(counters.dropped[static_cast<std::size_t>(DropReason::FLUSHED)] == 100);
  CHECK(counters.dropped[static_cast<std::size_t>(DropReason::KERNEL)] == 3);
  CHECK(bench.slots->kept() == 0);
  CHECK(bench.queue->region(0).available() == 256);
}
