#include "engines/socket/tcp_keeper.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "daqiri/error.h"
#include "engines/socket/peer_table.h"
#include "engines/socket/tcp_reader.h"
#include "engines/socket/tcp_sender.h"
#include "system/log.h"
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
constexpr int EVENTS_AT_ONCE = 64;

}  // namespace

TcpKeeper::TcpKeeper(const Port& port, const TcpConfig& config, TcpTable& table,
                     TcpStreams& streams)
    : config_(config),
      table_(table),
      streams_(streams),
      classifier_(port.classifier.get()),
      client_(config.client),
      steered_(!port.config.rx_.flows_.empty()),
      isolated_(port.config.rx_.flow_isolation_),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  try {
    if (events_ < 0 || wake_ < 0) {
      throw Error(Status::GENERIC_FAILURE, "interface '" + config_.interface +
                                               "': no epoll descriptor: " + std::strerror(errno) +
                                               "; raise the limit on open files (ulimit -n)");
    }
    if (!client_) listener_ = listen_at(config_);
  } catch (...) {
    if (events_ >= 0) ::close(events_);
    if (wake_ >= 0) ::close(wake_);
    throw;
  }
  watch(wake_, EPOLLIN, &wake_);
}

TcpKeeper::~TcpKeeper() {
  close();
  ::close(events_);
  ::close(wake_);
}

void TcpKeeper::start(std::vector<TcpReader*> readers, std::vector<TcpSender*> senders) {
  readers_ = std::move(readers);
  senders_ = std::move(senders);
  if (listener_ >= 0) watch(listener_, EPOLLIN, &listener_);
  thread_ = std::thread([this] { run(); });
}

void TcpKeeper::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
}

void TcpKeeper::watch(int fd, std::uint32_t events, void* subject) noexcept {
  epoll_event event{events, {.ptr = subject}};
  if (epoll_ctl(events_, EPOLL_CTL_MOD, fd, &event) != 0)
    epoll_ctl(events_, EPOLL_CTL_ADD, fd, &event);
}

// --- The thread

void TcpKeeper::run() noexcept {
  pthread_setname_np(pthread_self(), "daqiri-tcp");
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
      watch(listener_, EPOLLIN, &listener_);
    }
    if (accept_at_ns_ != 0) next = accept_at_ns_;
    for (std::uint32_t i = 0; i < table_.size(); ++i) next = std::min(next, tend(table_[i], now));
    admit_waiting();
    changed_.notify_all();
  }
}

void TcpKeeper::take_events(int timeout_ms) noexcept {
  std::array<epoll_event, EVENTS_AT_ONCE> events;
  const int n = epoll_wait(events_, events.data(), EVENTS_AT_ONCE, timeout_ms);
  std::uint64_t rings = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_, &rings, sizeof rings);
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.ptr == &wake_) continue;
    if (event.data.ptr == &listener_) {
      accept_peers(monotonic_ns());
    } else {
      on_event(*static_cast<TcpConnection*>(event.data.ptr), event.events);
    }
  }
}

void TcpKeeper::on_event(TcpConnection& connection, std::uint32_t events) noexcept {
  const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
  switch (connection.phase) {
    case Phase::CONNECTING: {
      if (connection.pending < 0) return;
      const int error = pending_error(connection.pending);
      if (error != 0) return attempt_failed(connection, error);
      return established(connection, std::exchange(connection.pending, -1));
    }
    case Phase::CONNECTED:
      // Only connections without a reader are watched.
      if (connection.reader != nullptr) return;
      if (broken) connection.read_error = pending_error(connection.fd);
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

std::uint64_t TcpKeeper::tend(TcpConnection& connection, std::uint64_t now) noexcept {
  switch (connection.phase) {
    case Phase::CLOSED:
      return NEVER;
    case Phase::CONNECTING:
      if (connection.pending >= 0 && now - connection.attempted_ns >= ATTEMPT_NS)
        attempt_failed(connection, ETIMEDOUT);
      if (connection.pending < 0 && connection.phase == Phase::CONNECTING &&
          now >= connection.attempted_ns + config_.retry_ns) {
        attempt(connection, now);
      }
      if (connection.phase != Phase::CONNECTING) return NEVER;
      return connection.attempted_ns + (connection.pending >= 0 ? ATTEMPT_NS : config_.retry_ns);
    case Phase::CONNECTED:
      if (connection.ended.load(std::memory_order_acquire)) {
        const bool failed = connection.send_failed.load(std::memory_order_acquire);
        if (connection.read_error != 0 || failed || senders_.empty()) {
          lose(connection, connection.read_error, now);
          return connection.phase == Phase::CONNECTING ? connection.attempted_ns + config_.retry_ns
                                                       : NEVER;
        }
        connection.phase = Phase::PEER_FINISHED;
        connection.idle_since_ns = now;
        watch(connection.fd, 0, &connection);
        return tend_finished(connection, now);
      }
      // Its reader then comes to the end.
      if (connection.send_failed.load(std::memory_order_acquire)) {
        shutdown(connection.fd, SHUT_RDWR);
        if (connection.reader == nullptr) connection.ended.store(true, std::memory_order_relaxed);
        return connection.reader == nullptr ? now : NEVER;
      }
      return NEVER;
    case Phase::PEER_FINISHED:
      return tend_finished(connection, now);
  }
  return NEVER;
}

std::uint64_t TcpKeeper::tend_finished(TcpConnection& connection, std::uint64_t now) noexcept {
  const std::uint64_t limit = client_ ? config_.retry_ns : FINISHED_IDLE_NS;
  const std::uint64_t sent = connection.bytes_sent.load(std::memory_order_relaxed);
  if (sent != connection.bytes_seen || !all_acknowledged(connection.fd)) {
    connection.bytes_seen = sent;
    connection.idle_since_ns = now;
  }
  if (!connection.send_failed.load(std::memory_order_acquire) &&
      now < connection.idle_since_ns + limit) {
    return connection.idle_since_ns + limit;
  }
  lose(connection, 0, now);
  return connection.phase == Phase::CONNECTING ? connection.attempted_ns + config_.retry_ns : NEVER;
}

// --- Ends

std::string TcpKeeper::named(const TcpConnection& connection) const {
  return "interface '" + config_.interface + "': connection " +
         std::to_string(connection.id.load(std::memory_order_relaxed)) +
         (client_ ? " to tcp://" : " of tcp://") + connection.peer.text();
}

void TcpKeeper::close_socket(TcpConnection& connection) noexcept {
  const std::lock_guard lock(connection.sending);
  if (connection.fd >= 0) ::close(connection.fd);
  connection.fd = -1;
  ++connection.generation;
  connection.unfinished = nullptr;
}

void TcpKeeper::lose(TcpConnection& connection, int error, std::uint64_t now) noexcept {
  if (error == 0) error = pending_error(connection.fd);
  close_socket(connection);
  connection.error = error;
  connection.closed_ns = now;
  connection.phase = client_ ? Phase::CONNECTING : Phase::CLOSED;
  std::string text = named(connection) + " has ended";
  if (error != 0) text += std::string(": ") + std::strerror(error);
  if (client_) {
    text += "; connecting again every " + std::to_string(config_.retry_ns / SECOND) + " s";
  }
  log(error != 0 || client_ ? LogLevel::WARN : LogLevel::INFO, text,
      {.interface = config_.interface, .queue = {}});
  for (TcpSender* sender : senders_) sender->wake();
}

// --- Client

void TcpKeeper::attempt(TcpConnection& connection, std::uint64_t now) noexcept {
  connection.attempted_ns = now;
  int error = 0;
  const int fd = begin_connect(connection.peer, connection.source, error);
  if (fd < 0) return attempt_failed(connection, error);
  if (error == 0) return established(connection, fd);
  connection.pending = fd;
  watch(fd, EPOLLOUT, &connection);
}

void TcpKeeper::attempt_failed(TcpConnection& connection, int error) noexcept {
  if (connection.pending >= 0) ::close(std::exchange(connection.pending, -1));
  // Once for each cause, however often it is tried.
  if (connection.error != error) {
    log(LogLevel::WARN,
        named(connection) + " cannot be made: " + connect_error_text(error, connection.peer) +
            "; trying every " + std::to_string(config_.retry_ns / SECOND) + " s",
        {.interface = config_.interface, .queue = {}});
  }
  connection.error = error;
  changed_.notify_all();
}

int TcpKeeper::connect(const SocketAddress& peer, const SocketAddress& source,
                       std::uint64_t wait_ns, std::uintptr_t& id) {
  std::unique_lock lock(mutex_);
  if (stopping_.load(std::memory_order_acquire)) {
    throw Error(Status::NOT_READY, "interface '" + config_.interface + "': the session is closed");
  }
  TcpConnection* connection = nullptr;
  for (std::uint32_t i = 0; i < table_.size() && connection == nullptr; ++i) {
    if (table_[i].phase != Phase::CLOSED && table_[i].peer.key() == peer.key() &&
        table_[i].source.key() == source.key()) {
      connection = &table_[i];
    }
  }
  if (connection == nullptr) {
    connection = table_.full() ? forgettable() : &table_.add();
    if (connection == nullptr) {
      throw Error(Status::NO_SPACE_AVAILABLE, "interface '" + config_.interface + "' has " +
                                                  std::to_string(table_.size()) +
                                                  " connections, which is the most there can be");
    }
    connection->peer = peer;
    connection->source = source;
    connection->error = 0;
    connection->options.clear();
    connection->reader = nullptr;
    connection->phase = Phase::CONNECTING;
    connection->id.store(id != 0 ? id : next_connection_id(), std::memory_order_release);
    attempt(*connection, monotonic_ns());
    wake();
  }
  id = connection->id.load(std::memory_order_relaxed);
  const auto decided = [&] {
    return connection->phase != Phase::CONNECTING || connection->error != 0;
  };
  changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns), decided);
  return decided() ? (connection->phase != Phase::CONNECTING ? 0 : connection->error) : EINPROGRESS;
}

void TcpKeeper::abandon(std::uintptr_t id) {
  const std::lock_guard lock(mutex_);
  TcpConnection* connection = table_.find(id);
  if (connection == nullptr || connection->phase != Phase::CONNECTING) return;
  if (connection->pending >= 0) ::close(std::exchange(connection->pending, -1));
  connection->phase = Phase::CLOSED;
  connection->closed_ns = monotonic_ns();
}

// --- The end

void TcpKeeper::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  wake();
  if (thread_.joinable()) thread_.join();
}

void TcpKeeper::finish_sending() noexcept {
  stop();
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    if (table_[i].fd >= 0) shutdown(table_[i].fd, SHUT_WR);
  }
  const std::uint64_t end = monotonic_ns() + LINGER_NS;
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    const int fd = table_[i].fd;
    while (fd >= 0 && !all_acknowledged(fd) && monotonic_ns() < end) usleep(500);
    if (fd >= 0 && !all_acknowledged(fd)) {
      log(LogLevel::WARN,
          named(table_[i]) +
              " is closed while the peer has not taken all that was sent; the "
              "kernel goes on trying",
          {.interface = config_.interface, .queue = {}});
    }
  }
}

void TcpKeeper::close() noexcept {
  stop();
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    close_socket(table_[i]);
    if (table_[i].pending >= 0) ::close(std::exchange(table_[i].pending, -1));
    table_[i].phase = Phase::CLOSED;
  }
  for (const Waiting& each : waiting_) ::close(each.fd);
  waiting_.clear();
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
  changed_.notify_all();
}

// --- For the application

void TcpKeeper::remember(TcpConnection& connection, SocketOption option) {
  std::erase_if(connection.options, [&](const SocketOption& each) {
    return each.level == option.level && each.option == option.option;
  });
  connection.options.push_back(std::move(option));
}

std::vector<ConnectionInfo> TcpKeeper::list(std::uintptr_t own) {
  const std::lock_guard lock(mutex_);
  std::vector<ConnectionInfo> all;
  if (!client_) {
    const ConnectionState state =
        listener_ >= 0 ? ConnectionState::LISTENING : ConnectionState::CLOSED;
    all.push_back({own, "", config_.local.text(), state, ""});
  }
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    const TcpConnection& each = table_[i];
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

std::size_t TcpKeeper::position(const TcpConnection& connection) {
  const std::lock_guard lock(mutex_);
  const auto it = std::find(readers_.begin(), readers_.end(), connection.reader);
  return it == readers_.end() ? 0 : static_cast<std::size_t>(it - readers_.begin());
}

}  // namespace daqiri::sockets
