// Processor time of the poller of a UDP server per datagram, and lost datagrams, by the number of
// peers that send in turn. Rounds alternate in one run.
//
// usage: bench_peers [datagrams a round, default 200000] [rounds, default 3]

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "arguments.h"
#include "session/session.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

NetworkConfig server(std::uint16_t port) {
  NetworkConfig config;
  config.common_.stream_type = StreamType::SOCKET;
  config.log_level_ = LogLevel::OFF;
  MemoryRegionConfig region;
  region.name_ = "rx";
  region.num_bufs_ = 16384;
  region.buf_size_ = 256;
  config.mrs_.emplace(region.name_, region);
  InterfaceConfig interface;
  interface.name_ = "udp0";
  interface.address_ = "127.0.0.1";
  interface.has_socket_ = true;
  interface.socket_.mode_ = SocketMode::SERVER;
  interface.socket_.local_addr_ = "udp://127.0.0.1:" + std::to_string(port);
  RxQueueConfig rx;
  rx.common_.name_ = "rx0";
  rx.common_.cpu_core_ = "any";
  rx.common_.batch_size_ = 64;
  rx.common_.mrs_ = {"rx"};
  interface.rx_.queues_.push_back(rx);
  config.ifs_.push_back(interface);
  return config;
}

/// Processor time of the poller's thread, ns.
std::uint64_t poller_time() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name.rfind("daqiri-rx", 0) != 0) continue;
    std::uint64_t ns = 0;
    std::ifstream(task.path() / "schedstat") >> ns;
    return ns;
  }
  return 0;
}

/// Sends datagrams to the port from `peers` addresses in turn, slowly enough for the poller.
void send(std::uint16_t port, std::uint32_t peers, std::uint32_t count) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  char data[100]{};
  iovec vector{data, sizeof data};
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(in_pktinfo))]{};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = sizeof to;
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = IPPROTO_IP;
  header->cmsg_type = IP_PKTINFO;
  header->cmsg_len = CMSG_LEN(sizeof(in_pktinfo));
  const std::uint64_t begun = monotonic_ns();
  constexpr std::uint64_t GAP_NS = 10'000;
  for (std::uint32_t i = 0; i < count; ++i) {
    in_pktinfo info{};
    info.ipi_spec_dst.s_addr = htonl(0x7F010001U + i % peers);
    std::memcpy(CMSG_DATA(header), &info, sizeof info);
    sendmsg(fd, &message, 0);
    if (i % 32 == 0) {
      while (monotonic_ns() < begun + i * GAP_NS) usleep(50);
    }
  }
  close(fd);
}

struct Result {
  double ns;
  double lost;
};

Result run(std::uint32_t peers, std::uint32_t count) {
  constexpr std::uint16_t PORT = 47'123;
  const auto session = Session::open(server(PORT));
  RxQueue& rx = session->rx_queue(0, 0);
  std::jthread consumer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (Burst* burst = rx.receive())
        burst->release();
      else
        rx.wait(10'000'000);
    }
  });
  // All peers are known before the measurement starts.
  send(PORT, peers, peers);
  usleep(50'000);
  const RxSnapshot before = rx.counters();
  const std::uint64_t time = poller_time();
  send(PORT, peers, count);
  usleep(50'000);
  const std::uint64_t spent = poller_time() - time;
  const RxSnapshot after = rx.counters();
  const double received = static_cast<double>(after.received - before.received);
  return {static_cast<double>(spent) / received,
          100.0 * static_cast<double>(after.dropped_total() - before.dropped_total()) / received};
}

}  // namespace

int main(int argc, char** argv) {
  const auto count = static_cast<std::uint32_t>(bench::number_or(argc, argv, 1, 200'000));
  const int rounds = std::max(1, static_cast<int>(bench::number_or(argc, argv, 2, 3)));
  constexpr std::uint32_t PEERS[] = {1, 900, 2000};
  std::vector<Result> results[std::size(PEERS)];
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < std::size(PEERS); ++i) results[i].push_back(run(PEERS[i], count));
  }
  double one = 0;
  for (std::size_t i = 0; i < std::size(PEERS); ++i) {
    std::sort(results[i].begin(), results[i].end(),
              [](const Result& a, const Result& b) { return a.ns < b.ns; });
    const Result& median = results[i][results[i].size() / 2];
    if (i == 0) one = median.ns;
    std::printf("%5u peers: %7.0f ns a datagram (%.0f to %.0f), %.2f of one peer, %.1f %% lost\n",
                PEERS[i], median.ns, results[i].front().ns, results[i].back().ns, median.ns / one,
                median.lost);
  }
  return 0;
}
