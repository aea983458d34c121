#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "session/loopback_config.h"
#include "session/workers.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint64_t HOUR = 3'600'000'000'000;

/// The system clock with an offset that a test can set. A test can also stop the clock during its
/// setup; stopping takes a lock that readers share, so that no reader sees a later time before.
std::atomic<std::int64_t> clock_step{0};
std::mutex clock_mutex;
std::uint64_t stopped_at = 0;
std::uint64_t stepped_clock() noexcept {
  const std::lock_guard lock(clock_mutex);
  return (stopped_at != 0 ? stopped_at : realtime_ns()) +
         static_cast<std::uint64_t>(clock_step.load());
}
/// Stops the clock while it exists; then the clock continues from that time.
class StoppedClock {
 public:
  StoppedClock() {
    const std::lock_guard lock(clock_mutex);
    stopped_at = realtime_ns();
  }
  ~StoppedClock() {
    const std::lock_guard lock(clock_mutex);
    clock_step -= static_cast<std::int64_t>(realtime_ns() - stopped_at);
    stopped_at = 0;
  }
  StoppedClock(const StoppedClock&) = delete;
  StoppedClock& operator=(const StoppedClock&) = delete;
};
constexpr Clock STEPPED{[](const void*) noexcept { return stepped_clock(); }, nullptr};

/// A wire that records its calls and their times.
class NotingWire final : public PortIo {
 public:
  struct Call {
    const TxQueue* queue;
    std::uint64_t begun;
    std::uint32_t packets;
    /// Latest launch time of the packets.
    std::uint64_t launch;
  };

  std::uint32_t receive(RxQueue&) noexcept override { return 0; }
  TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override {
    Call call{&queue, stepped_clock(), count, 0};
    TransmitResult result;
    for (std::uint32_t i = first; i < first + count; ++i) {
      call.launch = std::max(call.launch, burst.timestamps[i]);
      result.bytes += burst.packet_length(i);
    }
    const std::uint64_t end = monotonic_ns() + call_ns + packet_ns * count;
    while (monotonic_ns() < end) cpu_relax();
    const std::lock_guard lock(mutex_);
    calls_.push_back(call);
    if (lead_ns == 0) {
      result.sent = count;
      return result;
    }
    kept_.sent += count;
    kept_.bytes += result.bytes;
    kept_until_ = std::max(kept_until_, call.launch);
    return {.kept = count};
  }
  [[nodiscard]] TransmitTraits transmit_traits(const TxQueue&) const noexcept override {
    return {
        .keeps_buffers = keeps_buffers, .overhead_bytes = overhead_bytes, .launch_lead = lead_ns};
  }
  TransmitCompletion completed(TxQueue&, bool last) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!last && stepped_clock() < kept_until_) return {.more = true};
    TransmitCompletion result = std::exchange(kept_, {});
    if (keeps_buffers) {
      result.released = result.sent;
      return result;
    }
    // One packet was late, and one that was counted as sent is returned.
    if (result.sent > 1) {
      --result.sent;
      result.bytes -= 100;
      result.missed = 2;
      result.recalled = 1;
      result.recalled_bytes = 100;
    }
    return result;
  }
  [[nodiscard]] std::shared_ptr<const LinkLayer> link_layer() const override { return nullptr; }

  [[nodiscard]] std::vector<Call> calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  std::uint64_t call_ns{0};
  std::uint64_t packet_ns{0};
  std::uint32_t overhead_bytes{0};
  /// A device, which has packets until they have left, and drops none.
  bool keeps_buffers{false};
  /// Accepts launch times up to this far ahead.
  std::uint64_t lead_ns{0};

 private:
  std::mutex mutex_;
  std::vector<Call> calls_;
  TransmitCompletion kept_;
  std::uint64_t kept_until_{0};
};

/// Transmit queues on one worker, without a session.
struct Bench {
  explicit Bench(std::size_t num_queues, std::uint32_t pacing_mbps = 0,
                 std::uint32_t num_bufs = 8192) {
    clock_step = 0;
    InterfaceConfig interface;
    MemoryRegionConfig region;
    region.name_ = "tx";
    region.num_bufs_ = num_bufs;
    region.buf_size_ = 256;
    memory->regions.emplace("tx", memory::MemoryRegion::allocate(region));
    memory->tx_pool = std::make_unique<BurstPool>(64, 1024, 1, true);
    for (std::size_t i = 0; i < num_queues; ++i) {
      TxQueueConfig config;
      config.common_.id_ = static_cast<int>(i);
      config.common_.batch_size_ = 1024;
      config.common_.mrs_ = {"tx"};
      config.pacing_mbps_ = pacing_mbps;
      queues.push_back(std::make_unique<TxQueue>(interface, config, 64, memory));
    }
  }

  void start() {
    for (const auto& queue : queues) worker.add(wire, *queue);
    worker.start();
  }
  /// Submits packets. Launch times start at `launch` and are `gap` apart; 0 for none.
  void submit(std::size_t queue, std::uint32_t count, std::uint64_t launch = 0,
              std::uint64_t gap = 0) {
    Burst* burst = nullptr;
    REQUIRE(queues[queue]->allocate(count, &burst) == Status::SUCCESS);
    std::fill_n(burst->pkt_lens[0], count, 100U);
    for (std::uint32_t i = 0; i < count && launch != 0; ++i)
      burst->timestamps[i] = launch + gap * i;
    REQUIRE(queues[queue]->send(burst) == Status::SUCCESS);
  }

  std::shared_ptr<SessionMemory> memory{std::make_shared<SessionMemory>()};
  NotingWire wire;
  std::vector<std::unique_ptr<TxQueue>> queues;
  Transmitter worker{std::string(ANY_CORE), STEPPED};
};

constexpr std::int64_t LONG = 10'000'000'000;

}  // namespace

TEST_CASE("No packet leaves before its launch time", "[transmitter]") {
  Bench bench(2);
  bench.start();
  {
    const StoppedClock stopped;
    const std::uint64_t start = stepped_clock() + 2'000'000;
    bench.submit(0, 1000, start, 5'000);
    bench.submit(1, 300, start + 1'000, 20'000);
  }
  REQUIRE(bench.queues[0]->wait_idle(LONG));
  REQUIRE(bench.queues[1]->wait_idle(LONG));
  for (const NotingWire::Call& call : bench.wire.calls()) REQUIRE(call.begun >= call.launch);
  REQUIRE(bench.queues[0]->lateness().count() == 1000);
  REQUIRE(bench.queues[1]->lateness().count() == 300);
  REQUIRE(bench.queues[0]->counters().late == 0);
}

TEST_CASE("Packets that are due together leave in one call", "[transmitter]") {
  Bench bench(1);
  bench.start();
  bench.submit(0, 640, stepped_clock() + 5'000'000);
  REQUIRE(bench.queues[0]->wait_idle(LONG));
  REQUIRE(bench.wire.calls().size() == 640 / TransmitTraits{}.most_packets);
}

TEST_CASE("Gaps shorter than a call do not add up to a delay", "[transmitter]") {
  Bench bench(1);
  // A call takes twice the gap: with one call per packet, a schedule of 4 ms would take 8 ms.
  bench.wire.call_ns = 10'000;
  bench.start();
  bench.submit(0, 800, stepped_clock() + 1'000'000, 5'000);
  REQUIRE(bench.queues[0]->wait_idle(LONG));
  const std::size_t calls = bench.wire.calls().size();
  REQUIRE(calls < 800 * 3 / 4);
}

TEST_CASE("A step of the clock neither hangs the worker nor makes packets early", "[transmitter]") {
  Bench bench(1);
  bench.start();
  const auto set_back = [&bench] {
    const StoppedClock stopped;
    bench.submit(0, 20, stepped_clock() + 1'000'000, 100'000);
    clock_step -= static_cast<std::int64_t>(HOUR);
  };
  SECTION("forward: what is due now leaves now") {
    bench.submit(0, 20, stepped_clock() + HOUR / 2, 1'000);
    REQUIRE_FALSE(bench.queues[0]->wait_idle(20'000'000));
    clock_step = HOUR;
    REQUIRE(bench.queues[0]->wait_idle(LONG));
  }
  SECTION("back, while the worker waits: packets wait, and the queue can be stopped") {
    set_back();
    REQUIRE_FALSE(bench.queues[0]->wait_idle(50'000'000));
    bench.worker.stop();
    const TxSnapshot counters = bench.queues[0]->counters();
    REQUIRE(counters.held == 0);
    REQUIRE(counters.sent + counters.dropped[static_cast<std::size_t>(DropReason::FLUSHED)] == 20);
  }
  SECTION("back and forth") {
    set_back();
    REQUIRE_FALSE(bench.queues[0]->wait_idle(20'000'000));
    clock_step = 0;
    REQUIRE(bench.queues[0]->wait_idle(LONG));
  }
  bench.worker.stop();
  const std::vector<NotingWire::Call> calls = bench.wire.calls();
  // Except for one call that had already started when the clock was set.
  REQUIRE(std::count_if(calls.begin(), calls.end(), [](const NotingWire::Call& call) {
            return call.begun < call.launch;
          }) <= 1);
}

TEST_CASE("A clock that is set back does not stop a paced queue", "[transmitter]") {
  Bench bench(1, 1000);
  bench.start();
  bench.submit(0, 1000);
  clock_step = -static_cast<std::int64_t>(HOUR);
  bench.submit(0, 1000);
  REQUIRE(bench.queues[0]->wait_idle(LONG));
}

TEST_CASE("Pacing counts what a packet has on the wire, to the last bit", "[transmitter]") {
  // 1000 packets of 100 B, plus 42 B of headers on the wire, at 300 Mb/s: 3786.7 ns each.
  Bench bench(1, 300);
  bench.wire.overhead_bytes = 42;
  bench.start();
  const std::uint64_t begun = monotonic_ns();
  bench.submit(0, 1000);
  REQUIRE(bench.queues[0]->wait_idle(LONG));
  constexpr std::uint64_t CREDIT = 1'000'000;
  REQUIRE(monotonic_ns() - begun > 1000 * 142 * 8000 / 300 - CREDIT - 142 * 8000 / 300);
}

TEST_CASE("A flood on one queue leaves room for the launch times of another", "[transmitter]") {
  Bench bench(2, 0, 32'768);
  bench.wire.packet_ns = 5'000;
  const std::uint64_t start = stepped_clock() + 20'000'000;
  bench.submit(1, 50, start, 1'000'000);
  // 100 ms of work, submitted together. Without interleaving, one turn takes 320 us.
  for (int i = 0; i < 20; ++i) bench.submit(0, 1000);
  bench.start();
  REQUIRE(bench.queues[0]->wait_idle(LONG));
  REQUIRE(bench.queues[1]->wait_idle(LONG));
  // If the other queue were ignored, every launch time would fall into a whole turn of the flood.
  std::size_t timed = 0;
  std::size_t overrun = 0;
  for (const NotingWire::Call& call : bench.wire.calls()) {
    if (call.queue == bench.queues[1].get()) timed += call.packets;
    if (call.queue != bench.queues[0].get() || call.packets < TransmitTraits{}.most_packets)
      continue;
    for (std::uint64_t launch = start; launch < start + 50'000'000; launch += 1'000'000)
      overrun += call.begun < launch && launch - call.begun < 200'000 ? 1 : 0;
  }
  REQUIRE(timed == 50);
  // A stall between reading the clock and the call delays one packet.
  REQUIRE(overrun < 25);
}

TEST_CASE("A burst of one queue does not wait for the launch time of another", "[transmitter]") {
  Bench bench(2);
  bench.start();
  bench.submit(0, 1, stepped_clock() + HOUR);
  for (int i = 0; i < 50; ++i) {
    bench.submit(1, 10);
    REQUIRE(bench.queues[1]->wait_idle(LONG));
  }
  REQUIRE(bench.queues[0]->counters().held == 1);
}

TEST_CASE("Lateness begins anew before the next packet", "[transmitter]") {
  Bench bench(1);
  bench.start();
  bench.submit(0, 10, 1);
  REQUIRE(bench.queues[0]->wait_idle(LONG));
  REQUIRE(bench.queues[0]->lateness().maximum() > HOUR);
  bench.queues[0]->reset_lateness();
  bench.submit(0, 5, stepped_clock() + 1'000'000);
  REQUIRE(bench.queues[0]->wait_idle(LONG));
  REQUIRE(bench.queues[0]->lateness().count() == 5);
  REQUIRE(bench.queues[0]->lateness().maximum() < HOUR);
}

TEST_CASE("What the wire keeps until its launch time is held, and counted once", "[transmitter]") {
  Bench bench(1);
  bench.wire.lead_ns = 50'000'000;
  SECTION("until it has left, or is reported dropped") {
    bench.start();
    std::uint64_t start = 0;
    {
      const StoppedClock stopped;
      start = stepped_clock() + 300'000'000;
      bench.submit(0, 20, start);
    }
    REQUIRE(bench.queues[0]->wait_idle(LONG));
    REQUIRE(stepped_clock() >= start);
    const std::vector<NotingWire::Call> calls = bench.wire.calls();
    REQUIRE(calls.size() == 1);
    REQUIRE(calls[0].begun >= start - bench.wire.lead_ns);
    const TxSnapshot counters = bench.queues[0]->counters();
    REQUIRE(counters.sent == 18);
    REQUIRE(counters.sent_bytes == 1800);
    REQUIRE(counters.dropped[static_cast<std::size_t>(DropReason::MISSED_LAUNCH)] == 2);
    REQUIRE(counters.late == 0);
  }
  SECTION("and what is recalled was counted in an earlier pass") {
    TxQueue& queue = *bench.queues[0];
    queue.count_completed({.sent = 10, .bytes = 1000});
    queue.count_completed(
        {.sent = 1, .bytes = 100, .missed = 4, .failed = 3, .recalled = 4, .recalled_bytes = 400});
    queue.end_pass();
    const TxSnapshot counters = queue.counters();
    CHECK(counters.sent == 7);
    CHECK(counters.sent_bytes == 700);
    CHECK(counters.dropped[static_cast<std::size_t>(DropReason::MISSED_LAUNCH)] == 4);
    CHECK(counters.dropped[static_cast<std::size_t>(DropReason::SEND_ERROR)] == 3);
  }
  SECTION("until the worker stops") {
    bench.wire.lead_ns = 2 * HOUR;
    bench.start();
    bench.submit(0, 20, stepped_clock() + HOUR);
    REQUIRE_FALSE(bench.queues[0]->wait_idle(20'000'000));
    REQUIRE(bench.queues[0]->counters().held == 20);
    bench.worker.stop();
    REQUIRE(bench.queues[0]->counters().held == 0);
  }
  SECTION("but where a device has their buffers, it is asked for these at once") {
    bench.wire.keeps_buffers = true;
    bench.wire.lead_ns = 2 * HOUR;
    bench.start();
    bench.submit(0, 20);
    REQUIRE(bench.queues[0]->wait_idle(LONG));
    CHECK(bench.queues[0]->counters().sent == 20);
    CHECK(bench.memory->regions.at("tx")->available() == 8192);
  }
  SECTION("although the clock was set back") {
    bench.start();
    clock_step = HOUR;
    bench.submit(0, 20);
    clock_step = 0;
    REQUIRE(bench.queues[0]->wait_idle(LONG));
  }
}
