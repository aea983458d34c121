// Cost of delivering received packets to the application: buffer, burst, ring and back, in ns per
// packet. Equal packets in runs of 64, mixed ones (with different lengths, flows and times) in
// batches of 64, and mixed ones delivered one by one. The measurements alternate in one run.
//
// usage: bench_delivery [seconds per measurement, default 0.5] [rounds, default 5]

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "arguments.h"
#include "io/rx_queue.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

constexpr std::uint32_t AT_ONCE = 64;
constexpr std::uint32_t ROUNDS_BETWEEN_LOOKS = 64;

struct Bench {
  Bench() {
    MemoryRegionConfig region;
    region.name_ = "rx";
    region.num_bufs_ = 8192;
    region.buf_size_ = 64;
    memory->regions.emplace("rx", memory::MemoryRegion::allocate(region));
    RxQueueConfig config;
    config.common_.batch_size_ = 256;
    config.common_.mrs_ = {"rx"};
    queue = std::make_unique<RxQueue>(InterfaceConfig{}, config, 256, memory);
    for (std::uint32_t i = 0; i < AT_ONCE; ++i) {
      lengths[i] = 40 + i % 24;
      flows[i] = i % 7;
      times[i] = 1000 + i;
    }
  }

  /// Batches of `n` packets.
  double deliver(double seconds, std::uint32_t n, bool mixed) {
    const std::uint64_t begun = monotonic_ns();
    const auto end = begun + static_cast<std::uint64_t>(seconds * 1e9);
    std::uint64_t packets = 0;
    std::uint64_t now = begun;
    RxBatch batch;
    batch.count = n;
    batch.segments[0].lengths.constant = 60;
    while (now < end) {
      for (std::uint32_t round = 0; round < ROUNDS_BETWEEN_LOOKS; ++round) {
        queue->region(0).take(buffers.data(), AT_ONCE);
        for (std::uint32_t i = 0; i < AT_ONCE; i += n) {
          batch.segments[0].buffers = &buffers[i];
          if (mixed) {
            batch.segments[0].lengths.values = &lengths[i];
            batch.flows.values = &flows[i];
            batch.times.values = &times[i];
          }
          queue->deliver(batch);
        }
        while (Burst* burst = queue->receive()) burst->release();
      }
      packets += AT_ONCE * ROUNDS_BETWEEN_LOOKS;
      now = monotonic_ns();
    }
    return static_cast<double>(now - begun) / static_cast<double>(packets);
  }

  std::shared_ptr<SessionMemory> memory{std::make_shared<SessionMemory>()};
  std::unique_ptr<RxQueue> queue;
  std::array<std::uint32_t, AT_ONCE> buffers{};
  std::array<std::uint32_t, AT_ONCE> lengths{};
  std::array<FlowId, AT_ONCE> flows{};
  std::array<std::uint64_t, AT_ONCE> times{};
};

void print(const char* name, std::vector<double> ns, double base) {
  std::sort(ns.begin(), ns.end());
  const double median = ns[ns.size() / 2];
  std::printf("%-40s %6.2f ns a packet (%.2f to %.2f), %.2f of equal runs\n", name, median,
              ns.front(), ns.back(), median / base);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = bench::number_or(argc, argv, 1, 0.5);
  const int rounds = std::max(1, bench::number_or(argc, argv, 2, 5));
  Bench bench;
  std::vector<double> equal;
  std::vector<double> mixed;
  std::vector<double> single;
  for (int round = 0; round < rounds; ++round) {
    equal.push_back(bench.deliver(seconds, AT_ONCE, false));
    mixed.push_back(bench.deliver(seconds, AT_ONCE, true));
    single.push_back(bench.deliver(seconds, 1, true));
  }
  std::vector<double> sorted = equal;
  std::sort(sorted.begin(), sorted.end());
  const double base = sorted[sorted.size() / 2];
  print("equal packets, runs of 64", equal, base);
  print("mixed packets, batches of 64", mixed, base);
  print("mixed packets, one by one", single, base);
  return 0;
}
