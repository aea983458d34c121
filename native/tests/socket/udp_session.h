/// Configurations of UDP sessions, and plain sockets as peers.
#pragma once

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "daqiri/config.h"
#include "daqiri/error.h"
#include "free_port.h"
#include "session/session.h"
#include "timing/clock.h"

namespace daqiri::test {

using Bytes = std::vector<std::uint8_t>;

/// A datagram of `length` bytes that starts with `number` and is filled with values derived from
/// it.
inline Bytes numbered(std::uint32_t number, std::size_t length) {
  Bytes bytes(length);
  for (std::size_t i = 0; i < length; ++i)
    bytes[i] = static_cast<std::uint8_t>(number * 31 + i * 7);
  if (length > 0) std::memcpy(bytes.data(), &number, std::min(sizeof number, length));
  return bytes;
}

inline std::uint32_t number_of(const Bytes& bytes) {
  std::uint32_t number = 0;
  if (!bytes.empty()) std::memcpy(&number, bytes.data(), std::min(sizeof number, bytes.size()));
  return number;
}

/// A plain blocking UDP socket.
class PlainSocket {
 public:
  explicit PlainSocket(const std::string& host, std::uint16_t port = 0) {
    sockaddr_storage address{};
    const socklen_t length = fill(address, host, port);
    fd_ = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0 || bind(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0) {
      throw std::runtime_error("cannot bind " + host + ": " + std::strerror(errno));
    }
    socklen_t size = sizeof address;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = port_of(address);
  }
  PlainSocket(PlainSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), port_(other.port_) {}
  PlainSocket& operator=(PlainSocket&&) = delete;
  ~PlainSocket() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] int fd() const { return fd_; }

  bool send(const std::string& host, std::uint16_t port, const Bytes& bytes) const {
    sockaddr_storage address{};
    const socklen_t length = fill(address, host, port);
    const ssize_t n =
        sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&address), length);
    return n == static_cast<ssize_t>(bytes.size());
  }
  /// The next datagram and its source port; empty after 10 s (or `ms`).
  std::optional<std::pair<Bytes, std::uint16_t>> receive(int ms = 10'000) const {
    pollfd ready{fd_, POLLIN, 0};
    if (poll(&ready, 1, ms) != 1) return std::nullopt;
    Bytes bytes(65536);
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    const ssize_t n =
        recvfrom(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (n < 0) return std::nullopt;
    bytes.resize(static_cast<std::size_t>(n));
    return std::pair{bytes, port_of(from)};
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
  static std::uint16_t port_of(const sockaddr_storage& address) {
    return ntohs(address.ss_family == AF_INET6
                     ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                     : reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }

  int fd_{-1};
  std::uint16_t port_{0};
};

/// Packets and bytes of a flow of the first port.
inline std::pair<std::uint64_t, std::uint64_t> counts_of(const Session& session,
                                                         std::size_t position) {
  const FlowSnapshot counts = session.port(0).steering.counts(position);
  return {counts.packets, counts.bytes};
}

/// True if data arrives within `ms`.
inline bool readable(int fd, int ms = 0) {
  pollfd ready{fd, POLLIN, 0};
  return poll(&ready, 1, ms) == 1;
}

/// A port that is not in use.
inline std::uint16_t free_port(const std::string& host) { return free_port_for(SOCK_DGRAM, host); }

struct UdpOptions {
  int batch{64};
  std::uint32_t timeout_us{0};
  std::uint64_t num_bufs{4096};
  std::uint64_t buf_size{2048};
};

/// Regions and an interface "udp0" with one queue per direction; the caller sets the endpoints.
inline NetworkConfig udp_config(const UdpOptions& options = {}) {
  NetworkConfig config;
  config.common_.stream_type = StreamType::SOCKET;
  config.log_level_ = LogLevel::OFF;
  for (const char* name : {"rx_data", "tx_data"}) {
    MemoryRegionConfig region;
    region.name_ = name;
    region.num_bufs_ = options.num_bufs;
    region.buf_size_ = options.buf_size;
    config.mrs_.emplace(region.name_, region);
  }
  InterfaceConfig interface;
  interface.name_ = "udp0";
  interface.has_socket_ = true;
  RxQueueConfig rx;
  rx.common_.name_ = "rx0";
  rx.common_.cpu_core_ = "any";
  rx.common_.batch_size_ = options.batch;
  rx.timeout_us_ = options.timeout_us;
  rx.common_.mrs_ = {"rx_data"};
  interface.rx_.queues_.push_back(rx);
  TxQueueConfig tx;
  tx.common_.name_ = "tx0";
  tx.common_.cpu_core_ = "any";
  tx.common_.batch_size_ = options.batch;
  tx.common_.mrs_ = {"tx_data"};
  interface.tx_.queues_.push_back(tx);
  config.ifs_.push_back(interface);
  return config;
}

inline std::string at(const std::string& scheme, const std::string& host, std::uint16_t port) {
  const bool bracket = host.find(':') != std::string::npos;
  return scheme + "://" + (bracket ? "[" + host + "]" : host) + ":" + std::to_string(port);
}
inline std::string udp_at(const std::string& host, std::uint16_t port) {
  return at("udp", host, port);
}

inline NetworkConfig udp_server(const std::string& host, std::uint16_t port,
                                const UdpOptions& options = {}) {
  NetworkConfig config = udp_config(options);
  config.ifs_[0].address_ = host;
  config.ifs_[0].socket_.mode_ = SocketMode::SERVER;
  config.ifs_[0].socket_.local_addr_ = udp_at(host, port);
  // As validation sets it, for ports that are constructed directly.
  config.ifs_[0].socket_.local_ip_ = host;
  config.ifs_[0].socket_.local_port_ = port;
  return config;
}

inline NetworkConfig udp_client(const std::string& host, std::uint16_t port,
                                const UdpOptions& options = {}) {
  NetworkConfig config = udp_config(options);
  config.ifs_[0].address_ = host;
  config.ifs_[0].socket_.mode_ = SocketMode::CLIENT;
  config.ifs_[0].socket_.remote_addr_ = udp_at(host, port);
  config.ifs_[0].socket_.remote_ip_ = host;
  config.ifs_[0].socket_.remote_port_ = port;
  return config;
}

struct Received {
  Bytes bytes;
  std::uint64_t timestamp{0};
  FlowId flow{0};
  std::uintptr_t connection{0};
};

inline Bytes bytes_of(const Burst& burst, std::uint32_t i) {
  Bytes bytes;
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
    const auto* data = static_cast<const std::uint8_t*>(burst.pkts[s][i]);
    bytes.insert(bytes.end(), data, data + burst.pkt_lens[s][i]);
  }
  return bytes;
}

/// Receives until `count` packets have arrived or none arrives for 10 s.
inline std::vector<Received> receive_packets(RxQueue& rx, std::size_t count) {
  std::vector<Received> packets;
  std::uint64_t last = monotonic_ns();
  while (packets.size() < count && monotonic_ns() - last < 10'000'000'000ULL) {
    Burst* burst = rx.receive();
    if (burst == nullptr) {
      rx.wait(50'000'000);
      continue;
    }
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
      packets.push_back(
          {bytes_of(*burst, i), burst->timestamps[i], burst->flow_ids[i], burst->connection_id});
    }
    burst->release();
    last = monotonic_ns();
  }
  return packets;
}

/// Sends the packets over a connection; waits for buffers for at most 30 s.
inline bool send_packets(TxQueue& tx, const std::vector<Bytes>& packets,
                         std::uintptr_t connection = 0) {
  const std::uint64_t end = monotonic_ns() + 30'000'000'000ULL;
  for (std::size_t sent = 0; sent < packets.size();) {
    const auto n =
        static_cast<std::uint32_t>(std::min<std::size_t>(packets.size() - sent, tx.batch_size()));
    Burst* burst = nullptr;
    if (tx.allocate(n, &burst) != Status::SUCCESS) {
      if (monotonic_ns() > end) return false;
      tx.wait_free(10'000'000);
      continue;
    }
    burst->connection_id = connection;
    for (std::uint32_t i = 0; i < n; ++i) {
      const Bytes& packet = packets[sent + i];
      std::size_t done = 0;
      for (int s = 0; s < burst->hdr.hdr.num_segs; ++s) {
        const std::size_t part =
            std::min<std::size_t>(packet.size() - done, tx.region(s).buf_size());
        if (part > 0) std::memcpy(burst->pkts[s][i], packet.data() + done, part);
        burst->pkt_lens[s][i] = static_cast<std::uint32_t>(part);
        done += part;
      }
    }
    if (tx.send(burst) == Status::SUCCESS) sent += n;
  }
  return tx.wait_idle(20'000'000'000);
}

/// Waits until `received` packets are counted, for at most 20 s, and returns a snapshot.
inline RxSnapshot counters_after(const RxQueue& rx, std::uint64_t received) {
  const std::uint64_t end = monotonic_ns() + 20'000'000'000ULL;
  RxSnapshot snapshot = rx.counters();
  while (snapshot.received < received && monotonic_ns() < end) {
    usleep(1000);
    snapshot = rx.counters();
  }
  return snapshot;
}

inline std::uint64_t dropped(const RxSnapshot& s, DropReason reason) {
  return s.dropped[static_cast<std::size_t>(reason)];
}
inline std::uint64_t dropped(const TxSnapshot& s, DropReason reason) {
  return s.dropped[static_cast<std::size_t>(reason)];
}
inline bool balanced(const RxSnapshot& s) {
  return s.received == s.delivered + s.held + s.dropped_total();
}
inline bool balanced(const TxSnapshot& s) {
  return s.submitted == s.sent + s.held + s.dropped_total();
}

/// Status and text of the Error that `action` throws; SUCCESS if it throws none.
template <typename Action>
std::pair<Status, std::string> error_of(Action&& action) {
  try {
    action();
  } catch (const Error& e) {
    return {e.status(), e.what()};
  }
  return {Status::SUCCESS, ""};
}

}  // namespace daqiri::test
