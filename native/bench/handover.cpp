// Cost of passing packets on, without an engine: buffers from and to a region, bursts from and to a
// pool, a ring between two threads; in ns per packet, and per burst or buffer. The measurements
// alternate in one run.
//
// usage: bench_handover [seconds per measurement, default 0.5] [rounds, default 5]

#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

#include "arguments.h"
#include "burst/burst.h"
#include "memory/region.h"
#include "system/ring.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

constexpr std::uint32_t BATCH = 1024;
constexpr std::uint32_t BURSTS = 64;
constexpr std::uint32_t ROUNDS_BETWEEN_LOOKS = 256;

memory::MemoryRegion& region() {
  static const auto instance = [] {
    MemoryRegionConfig config;
    config.name_ = "packets";
    config.num_bufs_ = std::uint64_t{BATCH} * BURSTS;
    config.buf_size_ = 64;
    return memory::MemoryRegion::allocate(config);
  }();
  return *instance;
}

/// ns per call of `action`, over `seconds`.
template <typename Action>
double cost(double seconds, Action&& action) {
  const std::uint64_t begun = monotonic_ns();
  const auto end = begun + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t calls = 0;
  std::uint64_t now = begun;
  while (now < end) {
    for (std::uint32_t i = 0; i < ROUNDS_BETWEEN_LOOKS; ++i) action();
    calls += ROUNDS_BETWEEN_LOOKS;
    now = monotonic_ns();
  }
  return static_cast<double>(now - begun) / static_cast<double>(calls);
}

/// `n` buffers at a time from the region and back.
double buffers(double seconds, std::uint32_t n) {
  std::vector<std::uint32_t> numbers(n);
  return cost(seconds, [&] {
    const std::uint32_t taken = region().take(numbers.data(), n);
    region().give(numbers.data(), taken);
  });
}

/// A burst from the pool, filled with 1024 buffers, and everything back.
double bursts(double seconds) {
  BurstPool pool(BURSTS, BATCH, 1, false);
  return cost(seconds, [&] {
    Burst* burst = pool.take();
    burst->owners[0] = &region();
    burst->owned = region().take(burst->buffers[0], BATCH);
    burst->hdr.hdr.num_pkts = burst->owned;
    burst->release();
  });
}

/// A pointer through a ring on one thread: the cost of the ring alone.
double ring_alone(double seconds) {
  MpmcRing<Burst*> ring(BURSTS);
  Burst burst;
  return cost(seconds, [&] {
    Burst* got = nullptr;
    static_cast<void>(ring.push(&burst) && ring.pop(got));
  });
}

/// Bursts from a thread that fills them to one that releases them: pool, region and ring.
double hand_over(double seconds) {
  BurstPool pool(BURSTS, BATCH, 1, false);
  MpmcRing<Burst*> ring(BURSTS);
  std::atomic<bool> done{false};
  std::thread producer([&] {
    while (!done.load(std::memory_order_relaxed)) {
      Burst* burst = pool.take();
      if (burst == nullptr) {
        std::this_thread::yield();
        continue;
      }
      burst->owners[0] = &region();
      burst->owned = region().take(burst->buffers[0], BATCH);
      burst->hdr.hdr.num_pkts = burst->owned;
      if (!ring.push(burst)) burst->release();
    }
  });
  const std::uint64_t begun = monotonic_ns();
  const auto end = begun + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t received = 0;
  while (monotonic_ns() < end) {
    Burst* burst = nullptr;
    if (!ring.pop(burst)) {
      std::this_thread::yield();
      continue;
    }
    ++received;
    burst->release();
  }
  const double elapsed = static_cast<double>(monotonic_ns() - begun);
  done = true;
  producer.join();
  Burst* left = nullptr;
  while (ring.pop(left)) left->release();
  return elapsed / static_cast<double>(std::max<std::uint64_t>(received, 1));
}

struct Line {
  const char* name;
  double packets_per_call;
  std::vector<double> ns;

  void print() {
    std::sort(ns.begin(), ns.end());
    const double median = ns[ns.size() / 2];
    std::printf("%-52s %9.1f ns a call, %7.2f ns a packet (%.2f to %.2f)\n", name, median,
                median / packets_per_call, ns.front() / packets_per_call,
                ns.back() / packets_per_call);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = bench::number_or(argc, argv, 1, 0.5);
  const int rounds = std::max(1, bench::number_or(argc, argv, 2, 5));
  std::vector<Line> lines{{"region: one buffer, taken and given back", 1, {}},
                          {"region: 1024 buffers", BATCH, {}},
                          {"pool and region: a burst of 1024", BATCH, {}},
                          {"ring: push and pop on one thread, bursts of 1024", BATCH, {}},
                          {"hand-over between two threads, bursts of 1024", BATCH, {}}};
  for (int round = 0; round < rounds; ++round) {
    lines[0].ns.push_back(buffers(seconds, 1));
    lines[1].ns.push_back(buffers(seconds, BATCH));
    lines[2].ns.push_back(bursts(seconds));
    lines[3].ns.push_back(ring_alone(seconds));
    lines[4].ns.push_back(hand_over(seconds));
  }
  for (Line& line : lines) line.print();
  return 0;
}
