// Launch lateness of the transmit worker compared with a bare loop that spins on the clock and
// sends the same packets (UDP on 127.0.0.1), alternating in one run. Lateness is the time from the
// launch time to the start of the call that sends the packet. The goal is a ratio of at most 1.5 at
// the 99th percentile.
//
// usage: bench_lateness [seconds per measurement, default 0.5] [rounds, default 10]
// On a machine with other work: chrt -f 50 bench_lateness 0.15

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "arguments.h"
#include "net/socket_address.h"
#include "session/session.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

constexpr std::uint32_t BYTES = 1000;
constexpr int BATCH = 1024;
constexpr std::uint64_t LEAD_IN_NS = 20'000'000;

/// A UDP socket: bound and never read, or connected to such a socket.
class Udp {
 public:
  explicit Udp(const SocketAddress* peer) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const SocketAddress any = SocketAddress::parse("127.0.0.1", 0);
    if (fd_ < 0 || (peer == nullptr ? bind(fd_, any.data(), any.length())
                                    : connect(fd_, peer->data(), peer->length())) != 0) {
      std::perror("socket");
      std::exit(1);
    }
  }
  Udp(const Udp&) = delete;
  Udp& operator=(const Udp&) = delete;
  ~Udp() { ::close(fd_); }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

NetworkConfig configuration(std::uint16_t port) {
  NetworkConfig config;
  config.common_.stream_type = StreamType::SOCKET;
  config.log_level_ = LogLevel::ERROR;
  MemoryRegionConfig region;
  region.name_ = "tx";
  region.num_bufs_ = 8UL * BATCH;
  region.buf_size_ = BYTES;
  config.mrs_ = {{region.name_, region}};
  InterfaceConfig interface;
  interface.name_ = "udp0";
  interface.address_ = "127.0.0.1";
  interface.has_socket_ = true;
  interface.socket_.mode_ = SocketMode::CLIENT;
  interface.socket_.remote_addr_ = "udp://127.0.0.1:" + std::to_string(port);
  TxQueueConfig tx;
  tx.common_.name_ = "tx0";
  tx.common_.cpu_core_ = "any";
  tx.common_.batch_size_ = BATCH;
  tx.common_.mrs_ = {"tx"};
  interface.tx_.queues_ = {tx};
  config.ifs_ = {interface};
  return config;
}

/// Rounded to the resolution of the buckets.
void add(Histogram& sum, const Histogram& part) {
  for (std::uint32_t i = 0; i < Histogram::NUM_BUCKETS; ++i) {
    const std::uint64_t value = std::min(Histogram::upper_edge(i), part.maximum());
    for (std::uint64_t n = part.bucket_count(i); n > 0; --n) sum.record(value);
  }
}

void measure_ours(const Udp& sink, std::uint64_t gap, std::uint32_t count, Histogram& lateness) {
  const auto session = Session::open(configuration(SocketAddress::local_of(sink.fd()).port()));
  TxQueue& tx = session->tx_queue(0, 0);
  const std::uint64_t start = realtime_ns() + LEAD_IN_NS;
  for (std::uint32_t sent = 0; sent < count;) {
    Burst* burst = nullptr;
    const std::uint32_t n = std::min<std::uint32_t>(BATCH, count - sent);
    if (tx.allocate(n, &burst) != Status::SUCCESS) {
      tx.wait_free(100'000'000);
      continue;
    }
    std::fill_n(burst->pkt_lens[0], n, BYTES);
    for (std::uint32_t i = 0; i < n; ++i) burst->timestamps[i] = start + gap * (sent + i);
    if (tx.send(burst) == Status::SUCCESS) sent += n;
  }
  while (!tx.wait_idle(100'000'000)) {
  }
  session->close();
  add(lateness, tx.lateness());
}

void measure_bare(const Udp& sink, std::uint64_t gap, std::uint32_t count, Histogram& lateness) {
  const SocketAddress to = SocketAddress::local_of(sink.fd());
  const Udp from(&to);
  const std::vector<std::uint8_t> packets(std::size_t{BATCH} * BYTES);
  const std::uint64_t start = realtime_ns() + LEAD_IN_NS;
  std::this_thread::sleep_for(std::chrono::nanoseconds(LEAD_IN_NS - 1'000'000));
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t due = start + gap * i;
    std::uint64_t now = realtime_ns();
    while (now < due) now = realtime_ns();
    lateness.record(now - due);
    if (send(from.fd(), &packets[std::size_t{i % BATCH} * BYTES], BYTES, MSG_DONTWAIT) < 0) {
      std::perror("send");
      std::exit(1);
    }
  }
}

constexpr std::array QUANTILES{0.5, 0.99, 0.999};

void print(const char* what, const Histogram& h) {
  std::printf("  %-12s", what);
  for (const double q : QUANTILES) std::printf(" %10.3f", static_cast<double>(h.quantile(q)) / 1e3);
  std::printf(" %10.3f\n", static_cast<double>(h.maximum()) / 1e3);
}

void compare(std::uint64_t gap, double seconds, int rounds) {
  const Udp sink(nullptr);
  const auto count = static_cast<std::uint32_t>(seconds * 1e9 / static_cast<double>(gap));
  Histogram ours;
  Histogram bare;
  std::array<std::vector<double>, QUANTILES.size()> ratios;
  for (int round = 0; round < rounds; ++round) {
    Histogram this_ours;
    Histogram this_bare;
    measure_ours(sink, gap, count, this_ours);
    measure_bare(sink, gap, count, this_bare);
    for (std::size_t i = 0; i < QUANTILES.size(); ++i) {
      ratios[i].push_back(static_cast<double>(this_ours.quantile(QUANTILES[i])) /
                          static_cast<double>(this_bare.quantile(QUANTILES[i])));
    }
    add(ours, this_ours);
    add(bare, this_bare);
  }
  std::printf("gap %lu us, %d rounds of %u packets of %u B; us\n",
              static_cast<unsigned long>(gap / 1000), rounds, count, BYTES);
  std::printf("  %-12s %10s %10s %10s %10s\n", "", "p50", "p99", "p99.9", "max");
  print("daqiri", ours);
  print("spin loop", bare);
  std::printf("  %-12s", "ratio");
  for (auto& of : ratios) {
    std::sort(of.begin(), of.end());
    std::printf(" %10.2f", of[of.size() / 2]);
  }
  std::printf("   median of the rounds\n  %-12s", "");
  for (const auto& of : ratios) std::printf(" %4.2f-%5.2f", of.front(), of.back());
  std::printf("   least and most\n");
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = bench::number_or(argc, argv, 1, 0.5);
  const int rounds = bench::number_or(argc, argv, 2, 10);
  for (const std::uint64_t gap : {5'000U, 20'000U, 100'000U}) compare(gap, seconds, rounds);
  return 0;
}
