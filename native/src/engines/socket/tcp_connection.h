/// A connection of a TCP interface, and the table of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "io/io_engine.h"
#include "net/socket_address.h"

namespace daqiri::sockets {

class TcpReader;
class TcpSender;

/// A socket option that the application has set; it holds for later sockets of the connection, too.
struct SocketOption {
  int level;
  int option;
  std::vector<std::byte> value;
};

/// One peer. A client's connection keeps its id over all the sockets that it has in its life.
///
/// The keeper owns the socket. A poller reads from it between `TcpReader::add` and `ended`; workers
/// send under `sending`; the keeper closes it under `sending` once it has ended.
struct TcpConnection {
  /// 0: never used.
  std::atomic<std::uintptr_t> id{0};

  // --- Keeper, under its mutex.
  enum class Phase : std::uint8_t { CLOSED, CONNECTING, CONNECTED, PEER_FINISHED };
  Phase phase{Phase::CLOSED};
  SocketAddress peer;
  SocketAddress local;
  /// To connect from; no address: any.
  SocketAddress source;
  /// A socket that is connecting; -1: none.
  int pending{-1};
  /// errno of the latest loss or failed attempt.
  int error{0};
  std::uint64_t attempted_ns{0};
  /// Since when neither side has sent, in phase PEER_FINISHED.
  std::uint64_t idle_since_ns{0};
  std::uint64_t bytes_seen{0};
  /// When it was closed; the oldest is forgotten first.
  std::uint64_t closed_ns{0};
  std::vector<SocketOption> options;
  /// By position of the receive queue; null until it is used there.
  std::vector<Channel*> channels;

  // --- Workers, under `sending`.
  std::mutex sending;
  /// -1: closed or not connected.
  int fd{-1};
  /// Number of the socket: a packet that was cut by a loss is not resumed on the next one.
  std::uint32_t generation{0};
  /// Whose packet has left in part only; nobody else's may come between.
  const TcpSender* unfinished{nullptr};
  /// A send has failed for good.
  std::atomic<bool> send_failed{false};
  std::atomic<std::uint64_t> bytes_sent{0};

  // --- Poller, from TcpReader::add until it sets `ended`.
  int read_fd{-1};
  TcpReader* reader{nullptr};
  Channel* channel{nullptr};
  FlowId flow{0};
  bool listed{false};
  /// Bytes in the kernel that arrived before a flush.
  std::uint64_t stale{0};
  /// errno that ended reading; 0: the peer has sent all it wants to.
  int read_error{0};
  /// Nothing more will be read.
  std::atomic<bool> ended{true};
};

/// All connections of an interface. Entries are never moved; the keeper adds them.
class TcpTable {
 public:
  explicit TcpTable(std::uint32_t capacity) : connections_(capacity) {}

  /// By id; null: none. Any thread.
  [[nodiscard]] TcpConnection* find(std::uintptr_t id) noexcept {
    const std::uint32_t n = size();
    for (std::uint32_t i = 0; i < n && id != 0; ++i) {
      if (connections_[i].id.load(std::memory_order_acquire) == id) return &connections_[i];
    }
    return nullptr;
  }
  [[nodiscard]] const TcpConnection* find(std::uintptr_t id) const noexcept {
    return const_cast<TcpTable*>(this)->find(id);
  }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return size_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool full() const noexcept { return size() == connections_.size(); }
  TcpConnection& operator[](std::uint32_t i) noexcept { return connections_[i]; }
  const TcpConnection& operator[](std::uint32_t i) const noexcept { return connections_[i]; }

  /// Keeper: a fresh entry; the table must not be full.
  TcpConnection& add() noexcept {
    const std::uint32_t n = size_.load(std::memory_order_relaxed);
    size_.store(n + 1, std::memory_order_release);
    return connections_[n];
  }

  /// To which packets without a connection go: the peer heard last, or else the one that came last.
  std::atomic<TcpConnection*> last_heard{nullptr};

 private:
  std::vector<TcpConnection> connections_;
  std::atomic<std::uint32_t> size_{0};
};

}  // namespace daqiri::sockets
