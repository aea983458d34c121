/// Configurations of TCP sessions, and plain sockets as peers.
#pragma once

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include "socket/udp_session.h"

namespace daqiri::test {

struct TcpOptions {
  int batch{16};
  std::uint32_t timeout_us{0};
  std::uint64_t num_bufs{1024};
  std::uint64_t buf_size{2048};
  int rx_queues{1};
  int tx_queues{1};
};

/// Regions and an interface "tcp0" at `host`:`port`.
inline NetworkConfig tcp_config(SocketMode mode, const std::string& host, std::uint16_t port,
                                const TcpOptions& options = {}) {
  NetworkConfig config =
      udp_config({options.batch, options.timeout_us, options.num_bufs, options.buf_size});
  InterfaceConfig& interface = config.ifs_[0];
  interface.name_ = "tcp0";
  interface.address_ = host;
  interface.socket_.mode_ = mode;
  (mode == SocketMode::SERVER ? interface.socket_.local_addr_ : interface.socket_.remote_addr_) =
      at("tcp", host, port);
  const RxQueueConfig rx = interface.rx_.queues_[0];
  const TxQueueConfig tx = interface.tx_.queues_[0];
  interface.rx_.queues_.clear();
  interface.tx_.queues_.clear();
  for (int i = 0; i < options.rx_queues; ++i) {
    interface.rx_.queues_.push_back(rx);
    interface.rx_.queues_.back().common_.name_ = "rx" + std::to_string(i);
    interface.rx_.queues_.back().common_.id_ = i;
  }
  for (int i = 0; i < options.tx_queues; ++i) {
    interface.tx_.queues_.push_back(tx);
    interface.tx_.queues_.back().common_.name_ = "tx" + std::to_string(i);
    interface.tx_.queues_.back().common_.id_ = i;
  }
  return config;
}

inline NetworkConfig tcp_server(const std::string& host, std::uint16_t port,
                                const TcpOptions& options = {}) {
  return tcp_config(SocketMode::SERVER, host, port, options);
}
inline NetworkConfig tcp_client(const std::string& host, std::uint16_t port,
                                const TcpOptions& options = {}) {
  return tcp_config(SocketMode::CLIENT, host, port, options);
}

/// A plain TCP socket. Calls give up after 20 s.
class Stream {
 public:
  Stream() = default;
  explicit Stream(int fd) : fd_(fd) {
    const timeval limit{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  Stream(Stream&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Stream() { close(); }

  /// `from` and `source`: local port (0: any) and address (empty: `host`).
  static Stream connect_to(const std::string& host, std::uint16_t port, std::uint16_t from = 0,
                           const std::string& source = "") {
    sockaddr_storage address{};
    Stream stream(make(source.empty() ? host : source, from));
    const socklen_t length = fill(address, host, port);
    if (connect(stream.fd_, reinterpret_cast<sockaddr*>(&address), length) != 0)
      throw std::runtime_error(std::string("cannot connect: ") + std::strerror(errno));
    return stream;
  }

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] std::uint16_t port() const {
    sockaddr_in6 address{};
    socklen_t size = sizeof address;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin6_port);
  }
  bool send(const Bytes& bytes) const {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = ::send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return false;
      done += static_cast<std::size_t>(n);
    }
    return true;
  }
  /// Receives up to `count` bytes; fewer at the end of the stream or after a timeout.
  [[nodiscard]] Bytes receive(std::size_t count) const {
    Bytes bytes(count);
    std::size_t done = 0;
    while (done < count) {
      const ssize_t n = recv(fd_, bytes.data() + done, count - done, 0);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    bytes.resize(done);
    return bytes;
  }
  /// True if the peer has ended the stream without an error.
  [[nodiscard]] bool at_end() const {
    char byte = 0;
    return recv(fd_, &byte, 1, 0) == 0;
  }
  /// True if the kernel of the peer has all sent data.
  [[nodiscard]] bool all_arrived() const {
    int bytes = -1;
    return ioctl(fd_, SIOCOUTQ, &bytes) == 0 && bytes == 0;
  }
  void finish() const { shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  /// Closes with RST instead of FIN.
  void reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

 protected:
  static int make(const std::string& host, std::uint16_t port) {
    sockaddr_storage address{};
    const socklen_t length = fill(address, host, port);
    const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0)
      throw std::runtime_error("cannot bind " + host + ": " + std::strerror(errno));
    return fd;
  }

 private:
  static socklen_t fill(sockaddr_storage& address, const std::string& host, std::uint16_t port) {
    if (host.find(':') != std::string::npos) {
      auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(port);
      inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr);
      return sizeof v6;
    }
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    inet_pton(AF_INET, host.c_str(), &v4.sin_addr);
    return sizeof v4;
  }
  int fd_{-1};
};

/// A listening socket.
class Listener : public Stream {
 public:
  explicit Listener(const std::string& host, std::uint16_t port = 0) : Stream(make(host, port)) {
    listen(fd(), 16);
  }
  /// Waits for at most 20 s.
  [[nodiscard]] Stream accept() const {
    const int fd = ::accept(this->fd(), nullptr, nullptr);
    if (fd < 0) throw std::runtime_error(std::string("nobody came: ") + std::strerror(errno));
    return Stream(fd);
  }
};

inline std::uint16_t free_tcp_port(const std::string& host) {
  return free_port_for(SOCK_STREAM, host);
}

/// Bytes that depend on the position in the stream.
inline Bytes stream_of(std::size_t length, std::uint32_t seed = 0) {
  Bytes bytes(length);
  std::uint32_t x = seed * 2654435761U + 1;
  for (std::uint8_t& byte : bytes) {
    x = x * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(x >> 24U);
  }
  return bytes;
}

/// Packets of `piece` bytes; the last one may be shorter.
inline std::vector<Bytes> pieces_of(const Bytes& bytes, std::size_t piece) {
  std::vector<Bytes> pieces;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::size_t n = std::min(piece, bytes.size() - at);
    pieces.emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                        bytes.begin() + static_cast<std::ptrdiff_t>(at + n));
  }
  return pieces;
}

/// Receives until `count` bytes of the connection (0: any) have arrived or none arrives for 10 s.
inline Bytes receive_bytes(RxQueue& rx, std::size_t count, std::uintptr_t connection = 0) {
  Bytes bytes;
  std::uint64_t last = monotonic_ns();
  while (bytes.size() < count && monotonic_ns() - last < 10'000'000'000ULL) {
    Burst* burst = connection != 0 ? rx.receive_from(connection) : rx.receive();
    if (burst == nullptr) {
      rx.wait(20'000'000);
      continue;
    }
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
      const Bytes packet = bytes_of(*burst, i);
      bytes.insert(bytes.end(), packet.begin(), packet.end());
    }
    burst->release();
    last = monotonic_ns();
  }
  return bytes;
}

/// True if the condition becomes true within 20 s.
template <typename Condition>
bool eventually(Condition&& condition) {
  const std::uint64_t end = monotonic_ns() + 20'000'000'000ULL;
  while (!condition()) {
    if (monotonic_ns() > end) return false;
    usleep(1000);
  }
  return true;
}

inline std::vector<ConnectionInfo> connections(const Session& session) {
  return session.connections().list(0);
}
/// Number of connections in a state.
inline std::size_t count_in(const Session& session, ConnectionState state) {
  const auto all = connections(session);
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [&](const auto& c) { return c.state == state; }));
}

}  // namespace daqiri::test
