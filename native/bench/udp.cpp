// Loss-free rate of UDP reception by the engine (poller, region buffers, kernel timestamps, peers,
// hand-over) compared with a bare loop over the same system calls that discards the data,
// alternating in one run. One thread sends to both over loopback, no further ahead than every
// buffer can hold.
//
// Rows: the sender has the kernel cut messages of up to 64 KiB (UDP_SEGMENT), and receivers take
// them whole (UDP_GRO). Singly: one datagram per message on both sides (sendmmsg, recvmmsg).
//
// The sender has one core; all threads of a receiver share another.
//
// usage: bench_udp [seconds per measurement, default 1] [rounds, default 5] [sizes, default all]

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
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
constexpr unsigned ROW_CALL = 8;
constexpr std::size_t MAX_MESSAGE = 65536;
constexpr std::size_t MAX_PAYLOAD = 65507;
/// Bytes ahead of the receiver, and bytes of its buffers.
constexpr std::uint64_t WINDOW = 4U << 20U;
constexpr std::uint64_t BUFFERS = 16U << 20U;
constexpr int SENDER_CORE = 0;
constexpr int RECEIVER_CORE = 1;

void pin(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(core), &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

std::uint64_t packets_in(std::uint64_t bytes, std::size_t size) {
  return std::max<std::uint64_t>(bytes / size, CALL);
}

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

/// Sends until stopped, at most a window ahead of `received`.
class Sender {
 public:
  Sender(std::uint16_t port, std::size_t size, bool rows)
      : size_(size),
        row_(rows ? std::min<std::size_t>(CALL, MAX_PAYLOAD / size) : 1),
        calls_(rows ? std::max<std::size_t>(1, CALL / row_ / 4) : CALL),
        data_(size * row_),
        window_(packets_in(WINDOW, size)) {
    socket_.connect_to(port);
    if (rows) {
      const int segment = static_cast<int>(size);
      if (setsockopt(socket_.fd(), SOL_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0)
        throw std::runtime_error("no UDP_SEGMENT");
    }
    thread_ = std::thread([this] { run(); });
  }
  /// Ends the thread and returns the number of sent packets.
  std::uint64_t stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return sent_;
  }
  ~Sender() { stop(); }
  std::atomic<std::uint64_t> received{0};

 private:
  void run() {
    pin(SENDER_CORE);
    iovec vector{data_.data(), data_.size()};
    std::array<mmsghdr, CALL> messages{};
    for (mmsghdr& message : messages) {
      message.msg_hdr.msg_iov = &vector;
      message.msg_hdr.msg_iovlen = 1;
    }
    const std::uint64_t packets = row_ * calls_;
    while (!stop_.load(std::memory_order_relaxed)) {
      if (sent_ + packets > received.load(std::memory_order_relaxed) + window_) {
        std::this_thread::yield();
        continue;
      }
      const int n = sendmmsg(socket_.fd(), messages.data(), static_cast<unsigned>(calls_), 0);
      if (n > 0) sent_ += static_cast<std::uint64_t>(n) * row_;
    }
  }

  Socket socket_;
  std::size_t size_;
  std::size_t row_;
  std::size_t calls_;
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

Rate engine(std::size_t size, double seconds, bool rows) {
  NetworkConfig config;
  config.common_.stream_type = StreamType::SOCKET;
  config.log_level_ = LogLevel::ERROR;
  MemoryRegionConfig region;
  region.name_ = "rx";
  region.num_bufs_ = packets_in(BUFFERS, size);
  region.buf_size_ = size;
  config.mrs_ = {{region.name_, region}};
  InterfaceConfig interface;
  interface.name_ = "udp0";
  interface.address_ = "127.0.0.1";
  interface.has_socket_ = true;
  const std::uint16_t port = Socket().bind_any();
  interface.socket_.mode_ = SocketMode::SERVER;
  interface.socket_.local_addr_ = "udp://127.0.0.1:" + std::to_string(port);
  RxQueueConfig rx;
  rx.common_.name_ = "rx0";
  rx.common_.cpu_core_ = std::to_string(RECEIVER_CORE);
  rx.common_.batch_size_ =
      static_cast<int>(std::min<std::uint64_t>(1024, packets_in(WINDOW / 8, size)));
  rx.common_.mrs_ = {"rx"};
  interface.rx_.queues_ = {rx};
  config.ifs_ = {interface};
  const auto session = Session::open(config);
  RxQueue& queue = session->rx_queue(0, 0);
  std::uint64_t received = 0;
  Sender sender(port, size, rows);
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

Rate bare(std::size_t size, double seconds, bool rows) {
  const Socket socket;
  const std::uint16_t port = socket.bind_any();
  const int bytes = static_cast<int>(BUFFERS);
  if (setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0) {
    setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  const int on = 1;
  if (rows && setsockopt(socket.fd(), SOL_UDP, UDP_GRO, &on, sizeof on) != 0)
    throw std::runtime_error("no UDP_GRO");
  const std::size_t room = rows ? MAX_MESSAGE : size;
  const unsigned calls = rows ? ROW_CALL : CALL;
  std::vector<std::byte> data(calls * room);
  std::array<iovec, CALL> vectors{};
  std::array<mmsghdr, CALL> messages{};
  for (unsigned i = 0; i < calls; ++i) {
    vectors[i] = {data.data() + i * room, room};
    messages[i].msg_hdr.msg_iov = &vectors[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  std::uint64_t received = 0;
  const auto receive = [&] {
    const int n = recvmmsg(socket.fd(), messages.data(), calls, MSG_DONTWAIT, nullptr);
    // All datagrams have the same size.
    for (int i = 0; i < n; ++i) received += messages[static_cast<std::size_t>(i)].msg_len / size;
    return n > 0;
  };
  Sender sender(port, size, rows);
  const std::uint64_t begun = monotonic_ns();
  const std::uint64_t end = begun + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t now = begun;
  while (now < end) {
    // Polls continuously, like the poller of the engine.
    if (receive()) sender.received.store(received, std::memory_order_relaxed);
    now = monotonic_ns();
  }
  const std::uint64_t in_time = received;
  const std::uint64_t sent = sender.stop();
  while (receive()) {
  }
  return rate_of(in_time, received, sent, now - begun);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void compare(std::size_t size, double seconds, int rounds, bool rows) {
  std::vector<double> ours, theirs, ratios;
  double lost = 0;
  for (int round = 0; round < rounds; ++round) {
    const Rate e = engine(size, seconds, rows);
    const Rate b = bare(size, seconds, rows);
    ours.push_back(e.packets_per_s);
    theirs.push_back(b.packets_per_s);
    ratios.push_back(e.packets_per_s / b.packets_per_s);
    lost = std::max({lost, e.lost, b.lost});
  }
  const double gbps = median(ours) * static_cast<double>(size) * 8e-9;
  std::printf(
      "%5zu B %-6s engine %8.0f /s %6.2f Gb/s   bare %8.0f /s   ratio %.2f (%.2f to %.2f)   "
      "most lost %.1f %%\n",
      size, rows ? "rows" : "singly", median(ours), gbps, median(theirs), median(ratios),
      *std::min_element(ratios.begin(), ratios.end()),
      *std::max_element(ratios.begin(), ratios.end()), 100 * lost);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 1.0;
  int rounds = 5;
  std::vector<std::size_t> sizes;
  try {
    if (argc > 1) seconds = std::stod(argv[1]);
    if (argc > 2) rounds = std::stoi(argv[2]);
    for (int i = 3; i < argc; ++i) sizes.push_back(std::stoul(argv[i]));
    if (sizes.empty()) sizes = {1000, 8000, 64'000};
    if (seconds <= 0 || rounds <= 0) throw std::invalid_argument("not positive");
  } catch (const std::exception&) {
    std::fprintf(stderr, "usage: bench_udp [seconds per measurement] [rounds] [sizes]\n");
    return 2;
  }
  pin(RECEIVER_CORE);
  for (const std::size_t size : sizes) {
    for (const bool rows : {true, false}) compare(size, seconds, rounds, rows);
  }
  return 0;
}
