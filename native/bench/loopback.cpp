// Rate of the loopback engine (transmit worker, steering, copy, poller, hand-over) compared with
// plain copies of the same frames, alternating in one run; and the lateness of timed packets. One
// thread submits up to eight bursts without writing to the packets, then receives what has arrived.
//
// usage: bench_loopback [seconds per measurement, default 1] [rounds, default 3]

#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

#include "arguments.h"
#include "session/session.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

constexpr std::uint32_t BATCH = 1024;
constexpr std::uint64_t BUFFERS = 8192;
constexpr int BURSTS_AT_ONCE = 8;

NetworkConfig configuration(std::uint64_t frame, std::uint32_t batch = BATCH) {
  NetworkConfig config;
  config.common_.loopback_ = LoopbackType::LOOPBACK_TYPE_SW;
  config.log_level_ = LogLevel::ERROR;
  for (const char* name : {"rx", "tx"}) {
    MemoryRegionConfig region;
    region.name_ = name;
    region.num_bufs_ = std::max<std::uint64_t>(BUFFERS, 4U * batch);
    region.buf_size_ = frame;
    config.mrs_.emplace(region.name_, region);
  }
  InterfaceConfig port;
  port.name_ = "port0";
  port.address_ = "loopback";
  RxQueueConfig rx;
  rx.common_.name_ = "rx0";
  rx.common_.cpu_core_ = "any";
  rx.common_.batch_size_ = static_cast<int>(batch);
  rx.timeout_us_ = 1000;
  rx.common_.mrs_ = {"rx"};
  port.rx_.queues_ = {rx};
  TxQueueConfig tx;
  tx.common_.name_ = "tx0";
  tx.common_.cpu_core_ = "any";
  tx.common_.batch_size_ = static_cast<int>(batch);
  tx.common_.mrs_ = {"tx"};
  port.tx_.queues_ = {tx};
  config.ifs_ = {port};
  return config;
}

struct Rate {
  double packets_per_s;
  double lost;
};

Rate loopback_rate(std::uint64_t frame, std::uint32_t batch, double seconds) {
  const auto session = Session::open(configuration(frame, batch));
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  const std::uint64_t begun = monotonic_ns();
  const std::uint64_t end = begun + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t received = 0;
  const auto drain = [&] {
    while (Burst* burst = rx.receive()) {
      received += burst->num_packets();
      burst->release();
    }
  };
  while (monotonic_ns() < end) {
    Burst* burst = nullptr;
    for (int i = 0; i < BURSTS_AT_ONCE && tx.allocate(batch, &burst) == Status::SUCCESS; ++i) {
      std::fill_n(burst->pkt_lens[0], batch, static_cast<std::uint32_t>(frame));
      static_cast<void>(tx.send(burst));
    }
    drain();
  }
  const double elapsed = static_cast<double>(monotonic_ns() - begun) / 1e9;
  const std::uint64_t in_time = received;
  session->close();
  drain();
  const RxSnapshot counters = rx.counters();
  return {static_cast<double>(in_time) / elapsed,
          static_cast<double>(counters.dropped_total()) /
              static_cast<double>(std::max<std::uint64_t>(counters.received, 1))};
}

double copy_rate(std::uint64_t frame, double seconds) {
  std::vector<std::uint8_t> from(BUFFERS * frame, 1);
  std::vector<std::uint8_t> to(BUFFERS * frame, 2);
  const std::uint64_t begun = monotonic_ns();
  const std::uint64_t end = begun + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t copied = 0;
  while (monotonic_ns() < end) {
    for (std::uint64_t i = 0; i < BUFFERS; ++i)
      std::copy_n(&from[i * frame], frame, &to[i * frame]);
    copied += BUFFERS;
  }
  return static_cast<double>(copied) / (static_cast<double>(monotonic_ns() - begun) / 1e9);
}

void lateness(std::uint64_t gap_ns) {
  constexpr std::uint32_t COUNT = 20'000;
  const auto session = Session::open(configuration(1024));
  TxQueue& tx = session->tx_queue(0, 0);
  RxQueue& rx = session->rx_queue(0, 0);
  const std::uint64_t start = realtime_ns() + 20'000'000;
  for (std::uint32_t sent = 0; sent < COUNT;) {
    Burst* burst = nullptr;
    const std::uint32_t n = std::min<std::uint32_t>(BATCH, COUNT - sent);
    if (tx.allocate(n, &burst) != Status::SUCCESS) {
      tx.wait_free(10'000'000);
      continue;
    }
    std::fill_n(burst->pkt_lens[0], n, 1024U);
    for (std::uint32_t i = 0; i < n; ++i) burst->timestamps[i] = start + gap_ns * (sent + i);
    static_cast<void>(tx.send(burst));
    sent += n;
    while (Burst* got = rx.receive()) got->release();
  }
  while (!tx.wait_idle(100'000'000)) {
    while (Burst* got = rx.receive()) got->release();
  }
  const Histogram& h = tx.lateness();
  std::printf("lateness, gap %5.0f us: p50 %.2f us, p99 %.2f us, p99.9 %.1f us, max %.1f us\n",
              static_cast<double>(gap_ns) / 1e3, static_cast<double>(h.quantile(0.5)) / 1e3,
              static_cast<double>(h.quantile(0.99)) / 1e3,
              static_cast<double>(h.quantile(0.999)) / 1e3, static_cast<double>(h.maximum()) / 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = bench::number_or(argc, argv, 1, 1.0);
  const int rounds = bench::number_or(argc, argv, 2, 3);
  for (const std::uint64_t frame : {64U, 1000U, 8000U}) {
    for (const std::uint32_t batch : {256U, 1024U, 10240U}) {
      for (int round = 0; round < rounds; ++round) {
        const Rate ours = loopback_rate(frame, batch, seconds);
        const double copies = copy_rate(frame, seconds);
        std::printf(
            "%5lu B, %5u a burst: loopback %6.2f Mpps (%5.1f Gb/s, %.2f %% lost), copies %7.2f "
            "Mpps, ratio %.2f\n",
            static_cast<unsigned long>(frame), batch, ours.packets_per_s / 1e6,
            ours.packets_per_s * static_cast<double>(frame) * 8 / 1e9, ours.lost * 100,
            copies / 1e6, ours.packets_per_s / copies);
      }
    }
  }
  for (const std::uint64_t gap : {20'000U, 100'000U, 1'000'000U}) lateness(gap);
  return 0;
}
