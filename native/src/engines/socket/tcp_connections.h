/// The TCP connections of an interface, and the thread that makes, watches and closes them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engines/socket/socket_events.h"
#include "engines/socket/tcp_connection.h"
#include "engines/socket/tcp_socket.h"
#include "engines/socket/tcp_streams.h"
#include "io/io_engine.h"
#include "io/port.h"

namespace daqiri::sockets {

/// Accepts peers, connects and connects again, so that pollers only read and workers only send. Its
/// thread sleeps unless a connection comes or goes.
///
/// Each peer of a server has a connection id of its own; a client's connections keep their ids. A
/// peer that has finished sending (FIN) can be sent to until it resets the connection; when nothing
/// is sent for a minute, or for the retry time of a client, the connection is closed. It is closed
/// at once without transmit queues, and after a second when another peer needs its place.
class TcpConnections {
 public:
  using Phase = TcpConnection::Phase;
  static constexpr std::uint32_t CAPACITY = 1023;

  /// A server listens from now on. Throws Error.
  TcpConnections(const Port& port, const TcpConfig& config, TcpStreams& streams);
  TcpConnections(const TcpConnections&) = delete;
  TcpConnections& operator=(const TcpConnections&) = delete;
  ~TcpConnections() { close(); }

  /// Accept. Connections are given to `readers` (by position of their queues); `senders` are told
  /// when one can be sent to.
  void start(std::vector<TcpReader*> readers, std::vector<TcpSender*> senders);
  /// Any thread: a connection has ended or failed.
  void wake() noexcept { events_.wake(); }

  /// By id; null: none. Entries are never moved. Any thread.
  [[nodiscard]] TcpConnection* find(std::uintptr_t id) noexcept;
  /// To which packets without a connection go: the peer that was received from last, or else the
  /// one that came last.
  std::atomic<TcpConnection*> latest_peer{nullptr};

  /// The client's own connection, under the id given, kept up for ever. Waits for the outcome of
  /// the first attempt for at most `wait_ns`.
  void keep_up(const SocketAddress& peer, const SocketAddress& source, std::uint64_t wait_ns,
               std::uintptr_t id);
  /// A client's connection, kept up for ever once it was made; the one that there is to this peer,
  /// if there is one. Waits for the outcome of the next attempt for at most `wait_ns`; returns its
  /// errno (EINPROGRESS: none yet). Throws Error NO_SPACE_AVAILABLE.
  int connect(const SocketAddress& peer, const SocketAddress& source, std::uint64_t wait_ns,
              std::uintptr_t& id);

  /// Let the peers have what was sent, for 2 s at most. Ends the thread.
  void finish_sending() noexcept;
  void close() noexcept;

  /// Calls `set(fd)` while the socket stays open (-1: there is none). Null: the listening socket.
  template <typename Set>
  void set_option(const TcpConnection* connection, Set&& set) {
    const std::lock_guard lock(mutex_);
    set((connection == nullptr ? listener_ : connection->socket).fd());
  }
  /// All connections; `own`: the id of the listening socket.
  [[nodiscard]] std::vector<ConnectionInfo> list(std::uintptr_t own);
  /// Position of the queue that reads the connection.
  [[nodiscard]] std::size_t position(const TcpConnection& connection);

 private:
  void run() noexcept;
  void stop() noexcept;
  void take_events(int timeout_ms) noexcept;
  void on_event(TcpConnection& connection, std::uint32_t events) noexcept;
  /// Do what is due. Returns when it must be called again, CLOCK_MONOTONIC ns.
  std::uint64_t advance(TcpConnection& connection, std::uint64_t now) noexcept;
  std::uint64_t advance_finished(TcpConnection& connection, std::uint64_t now) noexcept;

  void accept_peers(std::uint64_t now) noexcept;
  /// A place for another connection, to be given to `occupy`; null: there is none.
  TcpConnection* free_place(std::uint64_t now) noexcept;
  void occupy(TcpConnection& place, const SocketAddress& peer, std::uintptr_t id) noexcept;

  /// Throws Error NO_SPACE_AVAILABLE.
  TcpConnection& make(const SocketAddress& peer, const SocketAddress& source, std::uintptr_t id);
  int await_attempt(std::unique_lock<std::mutex>& lock, const TcpConnection& connection,
                    std::uint64_t wait_ns);
  void attempt(TcpConnection& connection, std::uint64_t now) noexcept;
  void attempt_failed(TcpConnection& connection, int error) noexcept;
  void established(TcpConnection& connection, File socket) noexcept;
  /// Queue, flow and source; false: the interface is isolated and no flow wants it.
  bool assign(TcpConnection& connection);
  /// The socket has ended: a server's connection is closed, a client's connects again.
  std::uint64_t end(TcpConnection& connection, int error, std::uint64_t now) noexcept;
  static void close_socket(TcpConnection& connection) noexcept;
  [[nodiscard]] std::string named(const TcpConnection& connection) const;
  void log_about(LogLevel level, const std::string& text) const;

  const TcpConfig& config_;
  TcpStreams& streams_;
  steering::Steering::Reader steering_;
  std::vector<TcpReader*> readers_;
  std::vector<TcpSender*> senders_;
  std::uint32_t next_reader_{0};

  /// The first `size_` are or were in use.
  std::vector<TcpConnection> connections_{CAPACITY};
  std::atomic<std::uint32_t> size_{0};

  SocketEvents events_;
  File listener_;
  /// Accepting goes on then; 0: it does.
  std::uint64_t accept_at_ns_{0};
  bool shortage_logged_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace daqiri::sockets
