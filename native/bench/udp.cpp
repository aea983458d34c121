// Rate of UDP reception through the engine (poller, region buffers, kernel timestamps, peers,
// hand-over) against a bare recvmmsg loop that throws the data away, alternating in one run. One
// plain sendmmsg thread sends to either over loopback.
//
// Two rates: free of loss (no more in flight than fits every buffer), and flooded (what arrives
// when the sender waits for nobody; its loss is printed).
//
// usage: bench_udp [seconds per measurement, default 1] [rounds, default 5]

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "session/session.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

constexpr unsigned CALL = 64;
constexpr std::uint64_t WINDOW = 512;
constexpr std::uint64_t BUFFERS = 8192;

class Socket {
 public:
  Socket() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (fd_ < 0) throw std::runtime_error("no socket");
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { ::close(fd_); }
  /// Returns the port.
  std::uint16_t bind_any() const {
    sockaddr_in address = localhost(0);
    socklen_t length = sizeof address;
    if (bind(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0)
      throw std::runtime_error("bind failed");
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin_port);
  }
  void connect_to(std::uint16_t port) const {
    const sockaddr_in address = localhost(port);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("connect failed");
  }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  static sockaddr_in localhost(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  int fd_;
};

/// Sends until told to stop, at most `window` packets ahead of `received` (0: without limit).
class Sender {
 public:
  Sender(std::uint16_t port, std::size_t size, std::uint64_t window)
      : data_(size), window_(window) {
    socket_.connect_to(port);
    thread_ = std::thread([this] { run(); });
  }
  /// Ends the thread; packets sent.
  std::uint64_t stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return sent_;
  }
  ~Sender() { stop(); }
  std::atomic<std::uint64_t> received{0};

 private:
  void run() {
    iovec vector{data_.data(), data_.size()};
    std::array<mmsghdr, CALL> messages{};
    for (mmsghdr& message : messages) {
      message.msg_hdr.msg_iov = &vector;
      message.msg_hdr.msg_iovlen = 1;
    }
    while (!stop_.load(std::memory_order_relaxed)) {
      if (window_ != 0 && sent_ + CALL > received.load(std::memory_order_relaxed) + window_) {
        std::this_thread::yield();
        continue;
      }
      const int n = sendmmsg(socket_.fd(), messages.data(), CALL, 0);
      if (n > 0) sent_ += static_cast<std::uint64_t>(n);
    }
  }

  Socket socket_;
  std::vector<std::byte> data_;
  std::uint64_t window_;
  std::uint64_t sent_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct Rate {
  double packets_per_s{0};
  double lost{0};
};

Rate rate_of(std::uint64_t received, std::uint64_t after, std::uint64_t sent, std::uint64_t ns) {
  const double lost =
      sent > after ? static_cast<double>(sent - after) / static_cast<double>(sent) : 0.0;
  return {static_cast<double>(received) * 1e9 / static_cast<double>(ns), lost};
}

Rate engine(std::size_t size, double seconds, std::uint64_t window) {
  NetworkConfig config;
  config.common_.stream_type = StreamType::SOCKET;
  config.log_level_ = LogLevel::ERROR;
  MemoryRegionConfig region;
  region.name_ = "rx";
  region.num_bufs_ = BUFFERS;
  region.buf_size_ = size;
  config.mrs_ = {region};
  InterfaceConfig interface;
  interface.name_ = "udp0";
  interface.address_ = "127.0.0.1";
  interface.has_socket_ = true;
  const std::uint16_t port = Socket().bind_any();
  interface.socket_.local_addr_ = {SocketProtocol::UDP, "127.0.0.1", port};
  RxQueueConfig rx;
  rx.name_ = "rx0";
  rx.cpu_core_ = "any";
  rx.batch_size_ = 64;
  rx.timeout_us_ = 1000;
  rx.mrs_ = {"rx"};
  interface.rx_.queues_ = {rx};
  config.ifs_ = {interface};
  const auto session = Session::open(config);
  RxQueue& queue = session->rx_queue(0, 0);
  std::uint64_t received = 0;
  Sender sender(port, size, window);
  const std::uint64_t begun = monotonic_ns();
  const std::uint64_t end = begun + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t now = begun;
  while (now < end) {
    if (Burst* burst = queue.receive()) {
      received += burst->num_packets();
      burst->release();
      sender.received.store(received, std::memory_order_relaxed);
    } else {
      queue.wait(10'000'000);
    }
    now = monotonic_ns();
  }
  const std::uint64_t in_time = received;
  const std::uint64_t sent = sender.stop();
  session->close();
  while (Burst* burst = queue.receive()) {
    received += burst->num_packets();
    burst->release();
  }
  const RxSnapshot counters = queue.counters();
  if (counters.received != sent || counters.delivered + counters.dropped_total() != sent) {
    std::printf("accounting: sent %llu, counted %llu\n", static_cast<unsigned long long>(sent),
                static_cast<unsigned long long>(counters.received));
  }
  return rate_of(in_time, received, sent, now - begun);
}

Rate bare(std::size_t size, double seconds, std::uint64_t window) {
  const Socket socket;
  const std::uint16_t port = socket.bind_any();
  const int bytes = static_cast<int>(std::min<std::uint64_t>(BUFFERS * size, 64U << 20U));
  if (setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0) {
    setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  const timeval patience{0, 10'000};
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::vector<std::byte> data(CALL * size);
  std::array<iovec, CALL> vectors{};
  std::array<mmsghdr, CALL> messages{};
  for (unsigned i = 0; i < CALL; ++i) {
    vectors[i] = {data.data() + i * size, size};
    messages[i].msg_hdr.msg_iov = &vectors[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  std::uint64_t received = 0;
  const auto receive = [&](int flags) {
    const int n = recvmmsg(socket.fd(), messages.data(), CALL, flags, nullptr);
    if (n > 0) received += static_cast<std::uint64_t>(n);
    return n > 0;
  };
  Sender sender(port, size, window);
  const std::uint64_t begun = monotonic_ns();
  const std::uint64_t end = begun + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t now = begun;
  while (now < end) {
    if (receive(MSG_WAITFORONE)) sender.received.store(received, std::memory_order_relaxed);
    now = monotonic_ns();
  }
  const std::uint64_t in_time = received;
  const std::uint64_t sent = sender.stop();
  while (receive(MSG_DONTWAIT)) {
  }
  return rate_of(in_time, received, sent, now - begun);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void compare(std::size_t size, double seconds, int rounds, std::uint64_t window) {
  std::vector<double> ours, theirs, ratios, our_loss, their_loss;
  for (int round = 0; round < rounds; ++round) {
    const Rate e = engine(size, seconds, window);
    const Rate b = bare(size, seconds, window);
    ours.push_back(e.packets_per_s);
    theirs.push_back(b.packets_per_s);
    our_loss.push_back(e.lost);
    their_loss.push_back(b.lost);
    ratios.push_back(e.packets_per_s / b.packets_per_s);
  }
  const double gbps = median(ours) * static_cast<double>(size) * 8e-9;
  std::printf(
      "%5zu B %-9s engine %7.0f /s %5.2f Gb/s (lost %4.1f %%)   bare %7.0f /s (lost %4.1f %%)   "
      "ratio %.2f\n",
      size, window != 0 ? "loss-free" : "flooded", median(ours), gbps, 100 * median(our_loss),
      median(theirs), 100 * median(their_loss), median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 1.0;
  int rounds = 5;
  try {
    if (argc > 1) seconds = std::stod(argv[1]);
    if (argc > 2) rounds = std::stoi(argv[2]);
    if (seconds <= 0 || rounds <= 0) throw std::invalid_argument("not positive");
  } catch (const std::exception&) {
    std::fprintf(stderr, "usage: bench_udp [seconds per measurement] [rounds]\n");
    return 2;
  }
  for (const std::size_t size : {std::size_t{1000}, std::size_t{8000}}) {
    compare(size, seconds, rounds, WINDOW);
    compare(size, seconds, rounds, 0);
  }
  return 0;
}
