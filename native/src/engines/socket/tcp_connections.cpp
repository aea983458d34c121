#include "engines/socket/tcp_connections.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "daqiri/error.h"
#include "engines/socket/tcp_reader.h"
#include "engines/socket/tcp_sender.h"
#include "engines/socket/udp_peers.h"
#include "system/log.h"
#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

constexpr std::uint64_t NEVER = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t SECOND = 1'000'000'000U;
/// An attempt to connect is given up after this long.
constexpr std::uint64_t ATTEMPT_NS = 10 * SECOND;
/// A server's peer that has finished sending, and to which nothing is sent.
constexpr std::uint64_t FINISHED_IDLE_NS = 60 * SECOND;
constexpr std::uint64_t LINGER_NS = 2 * SECOND;

}  // namespace

TcpConnections::TcpConnections(const Port& port, const TcpConfig& config, TcpStreams& streams)
    : config_(config),
      streams_(streams),
      steering_(port.steering),
      events_("interface '" + config.interface + "'") {
  if (!config_.client) listener_ = listen_at(config_);
}

void TcpConnections::start(std::vector<TcpReader*> readers, std::vector<TcpSender*> senders) {
  readers_ = std::move(readers);
  senders_ = std::move(senders);
  if (listener_.is_open()) events_.watch(listener_.fd(), EPOLLIN, &listener_);
  thread_ = std::thread([this] { run(); });
}

TcpConnection* TcpConnections::find(std::uintptr_t id) noexcept {
  const std::uint32_t n = size_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < n && id != 0; ++i) {
    if (connections_[i].id.load(std::memory_order_acquire) == id) return &connections_[i];
  }
  return nullptr;
}

// --- The thread

void TcpConnections::run() noexcept {
  configure_thread(std::string(ANY_CORE), "daqiri-tcp");
  std::uint64_t next = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    int timeout = -1;
    if (next != NEVER) {
      const std::uint64_t now = monotonic_ns();
      const std::uint64_t ms = next > now ? (next - now) / 1'000'000U + 1 : 0;
      timeout = static_cast<int>(std::min<std::uint64_t>(ms, 60'000));
    }
    take_events(timeout);
    const std::lock_guard lock(mutex_);
    const std::uint64_t now = monotonic_ns();
    next = NEVER;
    if (accept_at_ns_ != 0 && accept_at_ns_ <= now) {
      accept_at_ns_ = 0;
      events_.watch(listener_.fd(), EPOLLIN, &listener_);
    }
    if (accept_at_ns_ != 0) next = accept_at_ns_;
    for (std::uint32_t i = 0; i < size_; ++i) next = std::min(next, advance(connections_[i], now));
    changed_.notify_all();
  }
}

void TcpConnections::take_events(int timeout_ms) noexcept {
  std::array<epoll_event, 64> events;
  const std::size_t n = events_.take(events, timeout_ms);
  const std::lock_guard lock(mutex_);
  bool peers = false;
  for (std::size_t i = 0; i < n; ++i) {
    void* const subject = events[i].data.ptr;
    if (subject == &listener_) {
      peers = true;
    } else if (subject != nullptr) {
      on_event(*static_cast<TcpConnection*>(subject), events[i].events);
    }
  }
  // Last: a new peer may get the place of a connection that has an event.
  if (peers) accept_peers(monotonic_ns());
}

void TcpConnections::on_event(TcpConnection& connection, std::uint32_t events) noexcept {
  const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
  switch (connection.phase) {
    case Phase::CONNECTING: {
      if (!connection.pending.is_open()) return;
      const int error = pending_error(connection.pending.fd());
      if (error != 0) return attempt_failed(connection, error);
      return established(connection, std::move(connection.pending));
    }
    case Phase::CONNECTED:
      // Only connections without a reader are watched.
      if (connection.reader != nullptr) return;
      if (broken) connection.read_error = pending_error(connection.socket.fd());
      if (broken || (events & EPOLLRDHUP) != 0)
        connection.ended.store(true, std::memory_order_relaxed);
      return;
    case Phase::PEER_FINISHED:
      if (broken) connection.send_failed.store(true, std::memory_order_relaxed);
      return;
    case Phase::CLOSED:
      return;
  }
}

std::uint64_t TcpConnections::advance(TcpConnection& connection, std::uint64_t now) noexcept {
  switch (connection.phase) {
    case Phase::CLOSED:
      return NEVER;
    case Phase::CONNECTING: {
      if (connection.pending.is_open() && now - connection.attempted_ns >= ATTEMPT_NS)
        attempt_failed(connection, ETIMEDOUT);
      if (!connection.pending.is_open() && now >= connection.attempted_ns + config_.retry_ns)
        attempt(connection, now);
      if (connection.phase != Phase::CONNECTING) return NEVER;
      return connection.attempted_ns +
             (connection.pending.is_open() ? ATTEMPT_NS : config_.retry_ns);
    }
    case Phase::CONNECTED: {
      const bool failed = connection.send_failed.load(std::memory_order_acquire);
      if (connection.ended.load(std::memory_order_acquire)) {
        if (connection.read_error != 0 || failed || senders_.empty())
          return end(connection, connection.read_error, now);
        connection.phase = Phase::PEER_FINISHED;
        connection.idle_since_ns = now;
        events_.watch(connection.socket.fd(), 0, &connection);
        return advance_finished(connection, now);
      }
      if (!failed) return NEVER;
      // Its reader then comes to the end.
      shutdown(connection.socket.fd(), SHUT_RDWR);
      if (connection.reader != nullptr) return NEVER;
      connection.ended.store(true, std::memory_order_relaxed);
      return now;
    }
    case Phase::PEER_FINISHED:
      return advance_finished(connection, now);
  }
  return NEVER;
}

std::uint64_t TcpConnections::advance_finished(TcpConnection& connection,
                                               std::uint64_t now) noexcept {
  const std::uint64_t limit = config_.client ? config_.retry_ns : FINISHED_IDLE_NS;
  const std::uint64_t sent = connection.bytes_sent.load(std::memory_order_relaxed);
  if (sent != connection.bytes_seen || !all_acknowledged(connection.socket.fd())) {
    connection.bytes_seen = sent;
    connection.idle_since_ns = now;
  }
  const bool failed = connection.send_failed.load(std::memory_order_acquire);
  if (!failed && now < connection.idle_since_ns + limit) return connection.idle_since_ns + limit;
  return end(connection, 0, now);
}

// --- Ends

std::string TcpConnections::named(const TcpConnection& connection) const {
  return "connection " + std::to_string(connection.id.load(std::memory_order_relaxed)) +
         (config_.client ? " to tcp://" : " of tcp://") + connection.peer.text();
}

void TcpConnections::log_about(LogLevel level, const std::string& text) const {
  log(level, "interface '" + config_.interface + "': " + text,
      {.interface = config_.interface, .queue = {}});
}

void TcpConnections::close_socket(TcpConnection& connection) noexcept {
  const std::lock_guard lock(connection.sending);
  connection.socket.close();
  ++connection.generation;
  connection.unfinished = nullptr;
}

std::uint64_t TcpConnections::end(TcpConnection& connection, int error,
                                  std::uint64_t now) noexcept {
  if (error == 0) error = pending_error(connection.socket.fd());
  close_socket(connection);
  connection.error = error;
  connection.closed_ns = now;
  connection.phase = config_.client ? Phase::CONNECTING : Phase::CLOSED;
  std::string text = named(connection) + " has ended";
  if (error != 0) text += std::string(": ") + std::strerror(error);
  if (config_.client)
    text += "; connecting again every " + std::to_string(config_.retry_ns / SECOND) + " s";
  log_about(error != 0 || config_.client ? LogLevel::WARN : LogLevel::INFO, text);
  for (TcpSender* sender : senders_) sender->wake();
  return config_.client ? connection.attempted_ns + config_.retry_ns : NEVER;
}

void TcpConnections::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  wake();
  if (thread_.joinable()) thread_.join();
}

void TcpConnections::finish_sending() noexcept {
  stop();
  const std::lock_guard lock(mutex_);
  const auto open = [&](std::uint32_t i) { return connections_[i].socket.fd(); };
  for (std::uint32_t i = 0; i < size_; ++i) {
    if (open(i) >= 0) shutdown(open(i), SHUT_WR);
  }
  const std::uint64_t deadline = monotonic_ns() + LINGER_NS;
  for (std::uint32_t i = 0; i < size_; ++i) {
    if (open(i) < 0) continue;
    while (!all_acknowledged(open(i)) && monotonic_ns() < deadline) usleep(500);
    if (all_acknowledged(open(i))) continue;
    log_about(LogLevel::WARN, named(connections_[i]) +
                                  " is closed while the peer has not taken all that was sent; the "
                                  "kernel goes on trying");
  }
}

void TcpConnections::close() noexcept {
  stop();
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < size_; ++i) {
    close_socket(connections_[i]);
    connections_[i].pending.close();
    connections_[i].phase = Phase::CLOSED;
  }
  listener_.close();
  changed_.notify_all();
}

// --- For the application

std::vector<ConnectionInfo> TcpConnections::list(std::uintptr_t own) {
  const std::lock_guard lock(mutex_);
  std::vector<ConnectionInfo> all;
  if (!config_.client) {
    const bool listening = listener_.is_open();
    all.push_back({own, "", config_.local.text(),
                   listening ? ConnectionState::LISTENING : ConnectionState::CLOSED, ""});
  }
  for (std::uint32_t i = 0; i < size_; ++i) {
    const TcpConnection& each = connections_[i];
    ConnectionInfo info;
    info.id = each.id.load(std::memory_order_relaxed);
    info.peer = each.peer.text();
    info.local = each.local.given() ? each.local.text() : "";
    info.state = each.phase == Phase::CLOSED       ? ConnectionState::CLOSED
                 : each.phase == Phase::CONNECTING ? ConnectionState::CONNECTING
                                                   : ConnectionState::CONNECTED;
    if (each.error != 0) info.error = std::strerror(each.error);
    all.push_back(std::move(info));
  }
  return all;
}

std::size_t TcpConnections::position(const TcpConnection& connection) {
  const std::lock_guard lock(mutex_);
  const auto it = std::find(readers_.begin(), readers_.end(), connection.reader);
  return it == readers_.end() ? 0 : static_cast<std::size_t>(it - readers_.begin());
}

}  // namespace daqiri::sockets
