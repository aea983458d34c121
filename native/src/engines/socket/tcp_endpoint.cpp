#include "engines/socket/tcp_endpoint.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

constexpr std::uint64_t NEVER = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t SECOND = 1'000'000'000U;
/// If the server of a session is available, it is connected when `open` returns.
constexpr std::uint64_t OPEN_WAIT_NS = SECOND;
/// An attempt to connect is aborted after this time.
constexpr std::uint64_t ATTEMPT_NS = 10 * SECOND;
/// Timeout of a server's peer that has finished sending, and to which nothing is sent.
constexpr std::uint64_t FINISHED_IDLE_NS = 60 * SECOND;

/// Returns and clears SO_ERROR.
int pending_error(int fd) noexcept {
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

/// Whether the peer has received everything, or never can.
bool all_acknowledged(int fd) noexcept {
  int bytes = 0;
  if (ioctl(fd, SIOCOUTQ, &bytes) != 0 || bytes == 0) return true;
  tcp_info info{};
  socklen_t length = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_state == TCP_CLOSE;
}

}  // namespace

TcpEndpoint::TcpEndpoint(const Port& port)
    : Endpoint(port, Transport::TCP),
      retry_ns_(port.config.socket_.retry_connect_s_ * SECOND),
      streams_(std::make_shared<TcpLinkLayer>((client() ? remote() : local()).family())),
      steering_(port.steering),
      events_("interface '" + name() + "'") {
  link_layer_ = streams_;
  if (!client()) listen();
  for (const auto& queue : port.rx) {
    readers_.push_back(std::make_unique<TcpReader>(*queue, *this, port.steering.add_tally()));
  }
  const std::uint32_t max_payload = port.config.socket_.max_payload_size_;
  while (senders_.size() < port.tx.size())
    senders_.push_back(std::make_unique<TcpSender>(*this, max_payload));
}

void TcpEndpoint::start() {
  if (listener_.is_open()) events_.watch(listener_.fd(), EPOLLIN, &listener_);
  thread_ = start_thread([this] { run(); });
  if (!client()) return;
  std::unique_lock lock(mutex_);
  await_attempt(lock, make(remote(), local(), connection_), OPEN_WAIT_NS);
}

// --- The thread

void TcpEndpoint::run() noexcept {
  configure_thread(std::string(ANY_CORE), "daqiri-tcp");
  std::uint64_t next = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    std::uint64_t now = monotonic_ns();
    const std::uint64_t ms = next > now ? (next - now) / 1'000'000U + 1 : 0;
    take_events(static_cast<int>(std::min<std::uint64_t>(ms, 60'000)));
    const std::lock_guard lock(mutex_);
    now = monotonic_ns();
    next = NEVER;
    if (accept_at_ns_ != 0 && accept_at_ns_ <= now) {
      accept_at_ns_ = 0;
      events_.watch(listener_.fd(), EPOLLIN, &listener_);
    }
    if (accept_at_ns_ != 0) next = accept_at_ns_;
    for (TcpConnection& each : used()) next = std::min(next, advance(each, now));
    changed_.notify_all();
  }
}

void TcpEndpoint::take_events(int timeout_ms) noexcept {
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
  // Last, because a new peer may reuse the place of a connection that has an event.
  if (peers) accept_peers(monotonic_ns());
}

void TcpEndpoint::on_event(TcpConnection& connection, std::uint32_t events) noexcept {
  const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
  switch (connection.phase.load()) {
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

std::uint64_t TcpEndpoint::advance(TcpConnection& connection, std::uint64_t now) noexcept {
  switch (connection.phase.load()) {
    case Phase::CLOSED:
      return NEVER;
    case Phase::CONNECTING: {
      if (connection.pending.is_open() && now - connection.attempted_ns >= ATTEMPT_NS)
        attempt_failed(connection, ETIMEDOUT);
      if (!connection.pending.is_open() && now >= connection.attempted_ns + retry_ns_)
        attempt(connection, now);
      if (connection.phase != Phase::CONNECTING) return NEVER;
      return connection.attempted_ns + (connection.pending.is_open() ? ATTEMPT_NS : retry_ns_);
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
      // Makes its reader reach the end.
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

std::uint64_t TcpEndpoint::advance_finished(TcpConnection& connection, std::uint64_t now) noexcept {
  const std::uint64_t limit = client() ? retry_ns_ : FINISHED_IDLE_NS;
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

std::string TcpEndpoint::named(const TcpConnection& connection) const {
  return "connection " + std::to_string(connection.id.load(std::memory_order_relaxed)) +
         (client() ? " to " : " of ") + uri(Transport::TCP, connection.peer);
}

void TcpEndpoint::close_socket(TcpConnection& connection) noexcept {
  const std::lock_guard lock(connection.sending);
  connection.socket.close();
  ++connection.generation;
  connection.unfinished = nullptr;
}

std::uint64_t TcpEndpoint::end(TcpConnection& connection, int error, std::uint64_t now) noexcept {
  if (error == 0) error = pending_error(connection.socket.fd());
  const bool reset = connection.reset.load(std::memory_order_acquire);
  if (reset) error = ECONNABORTED;
  close_socket(connection);
  connection.error = error;
  connection.closed_ns = now;
  // First, so that `latest_peer` never refers to a closed peer while there is another.
  if (latest_peer.load(std::memory_order_relaxed) == &connection)
    latest_peer.store(first_peer(&connection), std::memory_order_release);
  connection.phase = client() ? Phase::CONNECTING : Phase::CLOSED;
  std::string text = named(connection) + " has ended";
  if (reset) {
    text += ": a flush has reset it because the peer did not accept the data";
  } else if (error != 0) {
    text += std::string(": ") + std::strerror(error);
  }
  if (client()) text += "; connecting again every " + std::to_string(retry_ns_ / SECOND) + " s";
  log_about(name(), error != 0 || client() ? LogLevel::WARN : LogLevel::INFO, text);
  wake_senders();
  return client() ? connection.attempted_ns + retry_ns_ : NEVER;
}

void TcpEndpoint::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  wake();
  if (thread_.joinable()) thread_.join();
}

void TcpEndpoint::end_sending() noexcept {
  stop();
  const std::lock_guard lock(mutex_);
  for (const TcpConnection& each : used()) {
    if (each.socket.is_open()) shutdown(each.socket.fd(), SHUT_WR);
  }
}

void TcpEndpoint::finish_sending(std::uint64_t deadline) noexcept {
  const std::lock_guard lock(mutex_);
  for (const TcpConnection& each : used()) {
    if (!each.socket.is_open()) continue;
    while (!all_acknowledged(each.socket.fd()) && monotonic_ns() < deadline) usleep(500);
    if (all_acknowledged(each.socket.fd())) continue;
    log_about(name(), LogLevel::WARN,
              named(each) +
                  " is closed before the peer has received all data; the kernel continues to send");
  }
}

void TcpEndpoint::close() noexcept {
  stop();
  {
    const std::lock_guard lock(mutex_);
    for (TcpConnection& each : used()) {
      close_socket(each);
      each.pending.close();
      each.phase = Phase::CLOSED;
    }
    listener_.close();
    changed_.notify_all();
  }
  for (const auto& reader : readers_) reader->close();
}

// --- For the application

TcpConnection* TcpEndpoint::first_peer(const TcpConnection* leaving) const noexcept {
  TcpConnection* first = nullptr;
  const auto rank = [](const TcpConnection& peer) {
    return std::pair(peer.phase == Phase::PEER_FINISHED, peer.id.load(std::memory_order_relaxed));
  };
  for (TcpConnection& each : used()) {
    const Phase phase = each.phase;
    const bool there = phase == Phase::CONNECTED || phase == Phase::PEER_FINISHED;
    if (!there || &each == leaving) continue;
    if (first == nullptr || rank(each) < rank(*first)) first = &each;
  }
  return first;
}

const char* TcpEndpoint::unreachable(std::uintptr_t connection) const noexcept {
  const bool own = connection == 0 || connection == connection_;
  if (client() && own) return nullptr;
  const TcpConnection* peer = own ? latest_peer.load(std::memory_order_acquire) : find(connection);
  if (peer == nullptr)
    return own ? "no client is connected to the server" : "the interface has no such connection";
  const Phase phase = peer->phase;
  const bool open = phase == Phase::CONNECTED || phase == Phase::PEER_FINISHED;
  const bool gone = client() ? phase == Phase::CLOSED
                             : !open || peer->send_failed.load(std::memory_order_relaxed);
  return gone ? "the peer has closed the connection" : nullptr;
}

std::vector<ConnectionInfo> TcpEndpoint::connections() const {
  const std::lock_guard lock(mutex_);
  std::vector<ConnectionInfo> all;
  if (!client()) all.push_back(listening(listener_.is_open()));
  for (const TcpConnection& each : used()) {
    all.push_back({.id = each.id.load(std::memory_order_relaxed),
                   .peer = each.peer.text(),
                   .local = each.local.given() ? each.local.text() : "",
                   .state = each.phase == Phase::CLOSED       ? ConnectionState::CLOSED
                            : each.phase == Phase::CONNECTING ? ConnectionState::CONNECTING
                                                              : ConnectionState::CONNECTED,
                   .error = each.error != 0 ? std::strerror(each.error) : ""});
  }
  return all;
}

}  // namespace daqiri::sockets
