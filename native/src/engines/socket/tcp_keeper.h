/// The thread that makes, watches and closes the TCP connections of an interface.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engines/socket/tcp_connection.h"
#include "engines/socket/tcp_socket.h"
#include "engines/socket/tcp_streams.h"
#include "io/port.h"

namespace daqiri::sockets {

/// Accepts peers, connects and connects again, so that pollers only read and workers only send. It
/// sleeps unless a connection comes or goes.
///
/// A server's peer has a new connection id, but one that comes back from the same address and port
/// has its old one. A client's connections keep their ids. A peer that has finished sending (FIN)
/// can be sent to until it resets the connection; when nothing is sent for a minute, or for the
/// retry time of a client, the connection is closed. Without transmit queues it is closed at once.
class TcpKeeper {
 public:
  using Phase = TcpConnection::Phase;
  static constexpr std::uint32_t MAX_CONNECTIONS = RxQueue::MAX_CHANNELS - 1;

  /// A server listens from now on. Throws Error.
  TcpKeeper(const Port& port, const TcpConfig& config, TcpTable& table, TcpStreams& streams);
  TcpKeeper(const TcpKeeper&) = delete;
  TcpKeeper& operator=(const TcpKeeper&) = delete;
  ~TcpKeeper();

  /// Accept. Connections are given to `readers` (by position of their queues); `senders` are told
  /// when one can be sent to.
  void start(std::vector<TcpReader*> readers, std::vector<TcpSender*> senders);
  /// Any thread: a connection has ended or failed.
  void wake() noexcept;

  /// A client's connection, kept up for ever, under the id given (0: a new one). Waits for the
  /// outcome of the first attempt for at most `wait_ns`; returns its errno (EINPROGRESS: none yet).
  /// Throws Error NO_SPACE_AVAILABLE.
  int connect(const SocketAddress& peer, const SocketAddress& source, std::uint64_t wait_ns,
              std::uintptr_t& id);
  /// Give up a connection that `connect` has made.
  void abandon(std::uintptr_t id);

  /// Let the peers have what was sent, for 2 s at most. Ends the thread.
  void finish_sending() noexcept;
  void close() noexcept;

  /// Calls `set(fd)` while the socket stays open (-1: there is none), then remembers the option for
  /// later sockets of the connection. Null: the listening socket.
  template <typename Set>
  void set_option(TcpConnection* connection, SocketOption option, Set&& set) {
    const std::lock_guard lock(mutex_);
    const bool later = connection != nullptr && connection->phase == Phase::CONNECTING;
    if (!later) set(connection == nullptr ? listener_ : connection->fd);
    if (connection != nullptr) remember(*connection, std::move(option));
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
  /// When it must be looked at again, CLOCK_MONOTONIC ns.
  std::uint64_t tend(TcpConnection& connection, std::uint64_t now) noexcept;
  std::uint64_t tend_finished(TcpConnection& connection, std::uint64_t now) noexcept;
  void watch(int fd, std::uint32_t events, void* subject) noexcept;

  void accept_peers(std::uint64_t now) noexcept;
  void admit_waiting() noexcept;
  bool admit(int fd, const SocketAddress& peer) noexcept;
  TcpConnection* place_for(const SocketAddress& peer) noexcept;
  TcpConnection* forgettable() noexcept;
  [[nodiscard]] static bool drained(const TcpConnection& connection) noexcept;

  void attempt(TcpConnection& connection, std::uint64_t now) noexcept;
  void attempt_failed(TcpConnection& connection, int error) noexcept;
  void established(TcpConnection& connection, int fd) noexcept;
  /// Queue and flow; false: the interface is isolated and no flow wants it.
  bool assign(TcpConnection& connection);
  void lose(TcpConnection& connection, int error, std::uint64_t now) noexcept;
  void close_socket(TcpConnection& connection) noexcept;
  static void remember(TcpConnection& connection, SocketOption option);
  [[nodiscard]] std::string named(const TcpConnection& connection) const;

  const TcpConfig& config_;
  TcpTable& table_;
  TcpStreams& streams_;
  const steering::Classifier* classifier_;
  bool client_;
  bool steered_;
  bool isolated_;
  std::vector<TcpReader*> readers_;
  std::vector<TcpSender*> senders_;
  std::uint32_t next_reader_{0};

  int events_;
  int wake_;
  int listener_{-1};
  /// Accepting goes on then; 0: it does.
  std::uint64_t accept_at_ns_{0};
  bool shortage_logged_{false};
  struct Waiting {
    int fd;
    SocketAddress peer;
  };
  /// Peers that are back before their last connection has been read to its end.
  std::vector<Waiting> waiting_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace daqiri::sockets
