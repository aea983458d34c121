/// One TCP interface: its connections, and the thread that opens, watches and closes them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engines/socket/endpoint.h"
#include "engines/socket/link_layers.h"
#include "engines/socket/tcp_connection.h"
#include "system/socket_events.h"

namespace daqiri::sockets {

/// A server with its peers, or a client with its connections; one reader per receive queue, one
/// sender per transmit queue. Its thread accepts peers, connects and reconnects, so that pollers
/// only read and workers only send; it sleeps while no connection changes.
///
/// Each peer of a server has its own connection id; a client's connections keep their ids. A peer
/// that has finished sending (FIN) can receive until it resets the connection. If nothing is sent
/// for a minute, or for the retry time of a client, the connection is closed. Without transmit
/// queues it is closed immediately; after a second, if another peer needs its place.
class TcpEndpoint final : public Endpoint {
 public:
  using Phase = TcpConnection::Phase;
  static constexpr std::uint32_t CAPACITY = 1023;

  /// A server starts to listen. Throws Error.
  explicit TcpEndpoint(const Port& port);
  ~TcpEndpoint() override { close(); }

  /// Accept, or connect: a client waits 1 s for its server and then continues to try in the
  /// background.
  void start() override;
  std::uint32_t receive(RxQueue& queue) noexcept override {
    return readers_[position(port_.rx, queue)]->receive();
  }
  [[nodiscard]] ReceiveTraits receive_traits(const RxQueue& queue) const noexcept override {
    return {.ready = readers_[position(port_.rx, queue)]->ready()};
  }
  TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override {
    return senders_[position(port_.tx, queue)]->send(burst, first, count);
  }
  [[nodiscard]] bool cut(const TxQueue& queue) const noexcept override {
    return senders_[position(port_.tx, queue)]->cut();
  }
  bool settle(TxQueue& queue, bool last) noexcept override {
    return senders_[position(port_.tx, queue)]->settle(last);
  }
  [[nodiscard]] const char* unreachable(std::uintptr_t connection) const noexcept override;
  [[nodiscard]] TransmitTraits transmit_traits(const TxQueue& queue) const noexcept override {
    return {.most_packets = TcpSender::RUN,
            .overhead_bytes = packet_overhead(),
            .ready = senders_[position(port_.tx, queue)]->ready()};
  }
  /// Ends the thread.
  void end_sending() noexcept override;
  void finish_sending(std::uint64_t deadline) noexcept override;
  void close() noexcept override;

  [[nodiscard]] bool has_connection(std::uintptr_t connection) const noexcept override {
    return connection == connection_ || find(connection) != nullptr;
  }
  [[nodiscard]] std::uint16_t queue_of(std::uintptr_t connection) const override {
    const std::lock_guard lock(mutex_);
    const TcpConnection* found = find(connection);
    if (found == nullptr || found->reader == nullptr) return first_queue();
    return found->reader->queue().id();
  }
  [[nodiscard]] std::uintptr_t first_client() const override {
    const std::lock_guard lock(mutex_);
    const TcpConnection* first = first_peer();
    return first == nullptr ? 0 : first->id.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool can_connect(const SocketAddress& peer,
                                 const SocketAddress& source) const noexcept override {
    return client() && remote().family() == peer.family() &&
           (!source.given() || source.family() == peer.family());
  }
  /// The existing connection to this peer, or a new one, which is maintained permanently once
  /// established. Waits at most 10 s for the result of the next attempt. Throws Error
  /// CONNECT_FAILURE, NO_SPACE_AVAILABLE.
  std::uintptr_t connect(const SocketAddress& peer, const SocketAddress& source) override;
  void for_sockets(std::uintptr_t connection, const std::function<void(int fd)>& use) override {
    const std::lock_guard lock(mutex_);
    const TcpConnection* found = find(connection);
    use((found == nullptr ? listener_ : found->socket).fd());
  }
  [[nodiscard]] std::vector<ConnectionInfo> connections() const override;

  // --- For readers and senders.

  /// Any thread: a connection has ended or failed.
  void wake() noexcept { events_.wake(); }
  /// Find by id; null: none. Entries are never moved. Any thread.
  [[nodiscard]] TcpConnection* find(std::uintptr_t id) const noexcept {
    if (id == 0) return nullptr;
    // Most sends use the same connection as the previous one.
    TcpConnection* last = last_found_.load(std::memory_order_relaxed);
    if (last != nullptr && last->id.load(std::memory_order_acquire) == id) return last;
    for (TcpConnection& each : used()) {
      if (each.id.load(std::memory_order_acquire) != id) continue;
      last_found_.store(&each, std::memory_order_relaxed);
      return &each;
    }
    return nullptr;
  }
  /// Destination of packets without a connection: the peer from which data arrived last; after it
  /// is gone, the first one.
  std::atomic<TcpConnection*> latest_peer{nullptr};

  /// Places that are or were in use.
  [[nodiscard]] std::span<TcpConnection> used() const noexcept {
    return {connections_.data(), size_.load(std::memory_order_acquire)};
  }
  [[nodiscard]] std::size_t place_of(const TcpConnection& connection) const noexcept {
    return static_cast<std::size_t>(&connection - connections_.data());
  }

 private:
  /// With the mutex held: the first accepted peer that is connected; peers that have finished
  /// sending come last; not `leaving`; null: there is none.
  [[nodiscard]] TcpConnection* first_peer(const TcpConnection* leaving = nullptr) const noexcept;

  void run() noexcept;
  void stop() noexcept;
  void take_events(int timeout_ms) noexcept;
  void on_event(TcpConnection& connection, std::uint32_t events) noexcept;
  /// Do what is due. Returns when to call it again, CLOCK_MONOTONIC ns.
  std::uint64_t advance(TcpConnection& connection, std::uint64_t now) noexcept;
  std::uint64_t advance_finished(TcpConnection& connection, std::uint64_t now) noexcept;

  void listen();
  void accept_peers(std::uint64_t now) noexcept;
  /// A place for another connection, for `occupy`; null: there is none.
  TcpConnection* free_place(std::uint64_t now) noexcept;
  void occupy(TcpConnection& place, const SocketAddress& peer, std::uintptr_t id) noexcept;

  /// Make a client's connection. Throws Error NO_SPACE_AVAILABLE.
  TcpConnection& make(const SocketAddress& peer, const SocketAddress& source, std::uintptr_t id);
  /// Wait for the result of the attempt; returns its errno (EINPROGRESS: none yet).
  int await_attempt(std::unique_lock<std::mutex>& lock, const TcpConnection& connection,
                    std::uint64_t wait_ns);
  void attempt(TcpConnection& connection, std::uint64_t now) noexcept;
  void attempt_failed(TcpConnection& connection, int error) noexcept;
  void established(TcpConnection& connection, File socket) noexcept;
  /// Assign queue, flow and source; false: flow isolation is on and no flow matches.
  bool assign(TcpConnection& connection);
  /// The socket has ended: a server's connection is closed, a client's reconnects.
  std::uint64_t end(TcpConnection& connection, int error, std::uint64_t now) noexcept;
  static void close_socket(TcpConnection& connection) noexcept;
  [[nodiscard]] std::string named(const TcpConnection& connection) const;
  void wake_senders() noexcept {
    for (const auto& sender : senders_) sender->wake();
  }

  const std::uint64_t retry_ns_;
  std::shared_ptr<TcpLinkLayer> streams_;
  steering::Steering::Reader steering_;

  /// The first `size_` are or were in use.
  mutable std::vector<TcpConnection> connections_{CAPACITY};
  std::atomic<std::uint32_t> size_{0};
  mutable std::atomic<TcpConnection*> last_found_{nullptr};

  SocketEvents events_;
  File listener_;
  /// When to continue accepting; 0: not paused.
  std::uint64_t accept_at_ns_{0};
  bool shortage_logged_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stopping_{false};
  std::jthread thread_;

  /// In the order of the port's queues.
  std::vector<std::unique_ptr<TcpReader>> readers_;
  std::vector<std::unique_ptr<TcpSender>> senders_;
  std::size_t next_reader_{0};
};

}  // namespace daqiri::sockets
