// TCP over 127.0.0.1: the engine and bare loops over the same system calls, in turn. One thread
// sends and one receives; each side is measured with the engine and with a loop over send(2) or
// recv(2). A bare sender with MSG_ZEROCOPY shows its benefit here.
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "session/session.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

constexpr std::uint64_t REGION_BYTES = 32U << 20U;
/// The buffer of the bare receiver, which stays in the cache.
constexpr std::size_t RECEIVE_BYTES = 256U << 10U;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    if (fd_ < 0) throw std::runtime_error("no socket");
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  Socket() : Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int fd() const { return fd_; }
  /// Returns the port.
  [[nodiscard]] std::uint16_t listen_any() const {
    sockaddr_in address = localhost(0);
    socklen_t length = sizeof address;
    if (bind(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd_, 4) != 0)
      throw std::runtime_error("cannot listen");
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin_port);
  }
  void connect_to(std::uint16_t port) const {
    const sockaddr_in address = localhost(port);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect");
  }
  [[nodiscard]] Socket accept_one() const { return Socket(accept(fd_, nullptr, nullptr)); }

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

NetworkConfig engine_at(SocketMode mode, std::uint16_t port, std::size_t message) {
  NetworkConfig config;
  config.common_.stream_type = StreamType::SOCKET;
  config.log_level_ = LogLevel::ERROR;
  const bool receives = mode == SocketMode::SERVER;
  MemoryRegionConfig region;
  region.name_ = "data";
  region.buf_size_ = receives ? 65536 : message;
  region.num_bufs_ = std::max<std::uint64_t>(REGION_BYTES / region.buf_size_, 16);
  config.mrs_ = {{region.name_, region}};
  InterfaceConfig interface;
  interface.name_ = "tcp0";
  interface.address_ = "127.0.0.1";
  interface.has_socket_ = true;
  interface.socket_.mode_ = mode;
  (receives ? interface.socket_.local_addr_ : interface.socket_.remote_addr_) =
      "tcp://127.0.0.1:" + std::to_string(port);
  if (receives) {
    RxQueueConfig rx;
    rx.common_.name_ = "rx0";
    rx.common_.cpu_core_ = "any";
    rx.common_.batch_size_ = 4;
    rx.common_.mrs_ = {"data"};
    interface.rx_.queues_ = {rx};
  } else {
    TxQueueConfig tx;
    tx.common_.name_ = "tx0";
    tx.common_.cpu_core_ = "any";
    tx.common_.batch_size_ =
        static_cast<int>(std::clamp<std::size_t>((256U << 10U) / message, 1, 256));
    tx.common_.mrs_ = {"data"};
    interface.tx_.queues_ = {tx};
  }
  config.ifs_ = {interface};
  return config;
}

double gbps(std::uint64_t bytes, std::uint64_t ns) {
  return static_cast<double>(bytes) * 8 / static_cast<double>(ns);
}

/// Reads the completion messages of zero copy.
void reap(int fd) {
  char control[256];
  for (int i = 0; i < 64; ++i) {
    msghdr message{};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
  }
}

void send_messages(const Socket& socket, std::size_t message, int flags,
                   const std::atomic<bool>& stop) {
  const std::vector<std::byte> data(message);
  const int on = 1;
  if (flags != 0) setsockopt(socket.fd(), SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
  while (!stop.load(std::memory_order_relaxed)) {
    std::size_t done = 0;
    while (done < message) {
      const ssize_t n = send(socket.fd(), data.data() + done, message - done, flags | MSG_NOSIGNAL);
      if (flags != 0) reap(socket.fd());
      if (n < 0 && errno == ENOBUFS) continue;
      if (n <= 0) return;
      done += static_cast<std::size_t>(n);
    }
  }
}

/// Bytes per ns of a socket, as Gb/s, until `seconds` have passed.
double receive_for(const Socket& socket, double seconds) {
  std::vector<std::byte> data(RECEIVE_BYTES);
  const std::uint64_t begun = monotonic_ns();
  const std::uint64_t end = begun + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t bytes = 0;
  std::uint64_t now = begun;
  while (now < end) {
    const ssize_t n = recv(socket.fd(), data.data(), data.size(), 0);
    if (n <= 0) throw std::runtime_error("the stream has ended");
    bytes += static_cast<std::uint64_t>(n);
    now = monotonic_ns();
  }
  return gbps(bytes, now - begun);
}

double bare(std::size_t message, double seconds, int flags) {
  const Socket listener;
  const std::uint16_t port = listener.listen_any();
  Socket out;
  out.connect_to(port);
  double rate = 0;
  std::atomic<bool> stop{false};
  std::thread sender;
  {
    const Socket in = listener.accept_one();
    sender = std::thread([&] { send_messages(out, message, flags, stop); });
    rate = receive_for(in, seconds);
    stop = true;
  }
  sender.join();
  return rate;
}

double engine_receives(std::size_t message, double seconds) {
  const std::uint16_t port = Socket().listen_any();
  const auto session = Session::open(engine_at(SocketMode::SERVER, port, message));
  RxQueue& rx = session->rx_queue(0, 0);
  Socket out;
  out.connect_to(port);
  std::atomic<bool> stop{false};
  std::thread sender([&] { send_messages(out, message, 0, stop); });
  const std::uint64_t begun = monotonic_ns();
  const std::uint64_t end = begun + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t bytes = 0;
  std::uint64_t now = begun;
  while (now < end) {
    if (Burst* burst = rx.receive()) {
      bytes += static_cast<std::uint64_t>(burst->hdr.hdr.nbytes);
      burst->release();
    } else {
      rx.wait(10'000'000);
    }
    now = monotonic_ns();
  }
  stop = true;
  session->close();
  sender.join();
  return gbps(bytes, now - begun);
}

double engine_sends(std::size_t message, double seconds) {
  const Socket listener;
  const std::uint16_t port = listener.listen_any();
  const auto session = Session::open(engine_at(SocketMode::CLIENT, port, message));
  const Socket in = listener.accept_one();
  TxQueue& tx = session->tx_queue(0, 0);
  std::atomic<bool> stop{false};
  std::thread application([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      Burst* burst = nullptr;
      if (tx.allocate(tx.batch_size(), &burst) != Status::SUCCESS) {
        tx.wait_free(10'000'000);
        continue;
      }
      std::fill_n(burst->pkt_lens[0], tx.batch_size(), static_cast<std::uint32_t>(message));
      tx.send(burst);
    }
  });
  const double rate = receive_for(in, seconds);
  stop = true;
  application.join();
  // Data in flight is not counted.
  shutdown(in.fd(), SHUT_RDWR);
  session->close();
  return rate;
}

struct Spread {
  double low, middle, high;
};

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

void compare(std::size_t message, double seconds, int rounds) {
  std::vector<double> loop, receives, sends, zero, receive_ratio, send_ratio;
  for (int round = 0; round < rounds; ++round) {
    loop.push_back(bare(message, seconds, 0));
    receives.push_back(engine_receives(message, seconds));
    sends.push_back(engine_sends(message, seconds));
    zero.push_back(bare(message, seconds, MSG_ZEROCOPY));
    receive_ratio.push_back(receives.back() / loop.back());
    send_ratio.push_back(sends.back() / loop.back());
  }
  const Spread r = spread(receive_ratio);
  const Spread s = spread(send_ratio);
  std::printf(
      "%8zu B  bare %6.2f Gb/s   engine receives %6.2f (%.2f, %.2f to %.2f)   engine sends %6.2f "
      "(%.2f, %.2f to %.2f)   bare with MSG_ZEROCOPY %6.2f\n",
      message, spread(loop).middle, spread(receives).middle, r.middle, r.low, r.high,
      spread(sends).middle, s.middle, s.low, s.high, spread(zero).middle);
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
    std::fprintf(stderr, "usage: bench_tcp [seconds per measurement] [rounds]\n");
    return 2;
  }
  for (const std::size_t message :
       {std::size_t{1000}, std::size_t{8000}, std::size_t{65536}, std::size_t{1} << 20U}) {
    compare(message, seconds, rounds);
  }
  return 0;
}
