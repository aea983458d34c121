// How connections are established: attempts of a client, peers of a server, their queue and place.
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "engines/socket/tcp_endpoint.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

/// Pause of accepting if there is no place or descriptor for another peer.
constexpr std::uint64_t ACCEPT_PAUSE_NS = 100'000'000;
/// How long a peer that has finished sending keeps its place if another one needs it.
constexpr std::uint64_t FINISHED_GRACE_NS = 1'000'000'000;
constexpr int ACCEPTS_PER_EVENT = 64;
constexpr int BACKLOG = 1024;
constexpr std::uint64_t CONNECT_WAIT_NS = 10'000'000'000;

File make_stream_socket(const SocketAddress& address) noexcept {
  File made = make_socket(address, Transport::TCP);
  // A restarted process can use its port again although old connections are in TIME_WAIT.
  if (made.is_open()) set_int_option(made.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  return made;
}

/// No delay for small packets; a silent peer is detected within 25 s (keep-alive probes after 10 s,
/// 3 probes at intervals of 5 s).
void prepare_connected(int fd) noexcept {
  set_int_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_int_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_int_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_int_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_int_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

/// Whether the application has received all data of the connection.
bool drained(const TcpConnection& connection) noexcept {
  return connection.rx_source == nullptr ||
         connection.rx_source->waiting.load(std::memory_order_acquire) == 0;
}

/// Retires the source. Its reader has ended, or has not begun.
void give_up_source(TcpConnection& connection) noexcept {
  if (connection.rx_source != nullptr)
    connection.reader->queue().retire(*std::exchange(connection.rx_source, nullptr));
}

}  // namespace

bool TcpEndpoint::assign(TcpConnection& connection) {
  if (readers_.empty()) return true;
  TcpReader* reader = connection.reader;
  connection.flow = 0;
  connection.flow_position = steering::NO_FLOW;
  const steering::Steering::Pass pass(steering_);
  const steering::Program& program = pass.program();
  if (!program.empty()) {
    const steering::Verdict verdict =
        program.classify({key_of(connection.peer, connection.local, 0)});
    if (program.isolated() && !verdict.matched) return false;
    reader = std::find_if(readers_.begin(), readers_.end(), [&](const auto& each) {
               return each->queue().id() == verdict.queue;
             })->get();
    connection.flow = verdict.flow;
    connection.flow_position = verdict.position;
  } else if (reader == nullptr) {
    reader = readers_[next_reader_++ % readers_.size()].get();
  }
  if (connection.reader != reader) give_up_source(connection);
  connection.reader = reader;
  if (connection.rx_source == nullptr) {
    connection.rx_source =
        &reader->queue().add_source(connection.id.load(std::memory_order_relaxed));
  }
  return true;
}

void TcpEndpoint::established(TcpConnection& connection, File socket) noexcept {
  const int fd = socket.fd();
  prepare_connected(fd);
  connection.local = SocketAddress::local_of(fd);
  const std::uintptr_t id = connection.id.load(std::memory_order_relaxed);
  {
    const std::lock_guard lock(connection.sending);
    connection.socket = std::move(socket);
    ++connection.generation;
    connection.unfinished = nullptr;
    connection.send_failed.store(false, std::memory_order_relaxed);
    connection.reset.store(false, std::memory_order_relaxed);
  }
  connection.phase = Phase::CONNECTED;
  connection.error = 0;
  connection.read_fd = fd;
  connection.read_error = 0;
  connection.listed = false;
  connection.stale = 0;
  connection.bytes_seen = connection.bytes_sent.load(std::memory_order_relaxed);
  const StreamPosition stream{streams_->begin(id, {connection.peer.key(), connection.local.key()}),
                              0};
  int error = 0;
  try {
    if (!assign(connection)) error = ECONNABORTED;
  } catch (const std::exception&) {
    error = ENOMEM;
  }
  if (error == 0 && connection.reader != nullptr) {
    connection.rx_source->stream = stream;
    if (client()) events_.forget(fd);
    error = connection.reader->add(connection);
  } else if (error == 0) {
    connection.ended.store(false, std::memory_order_relaxed);
    error = events_.watch(fd, EPOLLRDHUP, &connection);
  }
  if (error != 0) {
    end(connection, error, monotonic_ns());
    return;
  }
  const TcpConnection* latest = latest_peer.load(std::memory_order_relaxed);
  if (latest == nullptr || latest->phase != Phase::CONNECTED)
    latest_peer.store(&connection, std::memory_order_relaxed);
  log_about(name(), LogLevel::INFO, named(connection) + " is established");
  wake_senders();
  changed_.notify_all();
}

TcpConnection* TcpEndpoint::free_place(std::uint64_t now) noexcept {
  const std::uint32_t n = size_.load(std::memory_order_relaxed);
  if (n < CAPACITY) return &connections_[n];
  // The one that was closed first; otherwise the one that finished sending first.
  TcpConnection* closed = nullptr;
  TcpConnection* finished = nullptr;
  for (TcpConnection& each : connections_) {
    if (!drained(each)) continue;
    if (each.phase == Phase::CLOSED && (closed == nullptr || each.closed_ns < closed->closed_ns))
      closed = &each;
    if (each.phase == Phase::PEER_FINISHED && now >= each.idle_since_ns + FINISHED_GRACE_NS &&
        (finished == nullptr || each.idle_since_ns < finished->idle_since_ns))
      finished = &each;
  }
  if (closed != nullptr || finished == nullptr || client()) return closed;
  end(*finished, 0, now);
  return finished;
}

void TcpEndpoint::occupy(TcpConnection& place, const SocketAddress& peer,
                         std::uintptr_t id) noexcept {
  give_up_source(place);
  place.peer = peer;
  place.reader = nullptr;
  place.error = 0;
  place.id.store(id, std::memory_order_release);
  const std::uint32_t n = size_.load(std::memory_order_relaxed);
  if (&place == connections_.data() + n) size_.store(n + 1, std::memory_order_release);
}

// --- Client

void TcpEndpoint::attempt(TcpConnection& connection, std::uint64_t now) noexcept {
  connection.attempted_ns = now;
  const SocketAddress& peer = connection.peer;
  const SocketAddress& source = connection.source;
  File socket = make_stream_socket(peer);
  const bool ready = socket.is_open() &&
                     (!source.given() || bind(socket.fd(), source.data(), source.length()) == 0);
  if (ready && ::connect(socket.fd(), peer.data(), peer.length()) == 0)
    return established(connection, std::move(socket));
  if (!ready || errno != EINPROGRESS) return attempt_failed(connection, errno);
  connection.pending = std::move(socket);
  events_.watch(connection.pending.fd(), EPOLLOUT, &connection);
}

void TcpEndpoint::attempt_failed(TcpConnection& connection, int error) noexcept {
  connection.pending.close();
  // Log once per reason, regardless of the number of attempts.
  if (connection.error != error) {
    log_about(name(), LogLevel::WARN,
              named(connection) + " cannot be established: " +
                  socket_error_text(error, connection.peer, Transport::TCP) + "; trying every " +
                  std::to_string(retry_ns_ / 1'000'000'000U) + " s");
  }
  connection.error = error;
  changed_.notify_all();
}

TcpConnection& TcpEndpoint::make(const SocketAddress& peer, const SocketAddress& source,
                                 std::uintptr_t id) {
  TcpConnection* place = free_place(monotonic_ns());
  if (place == nullptr) {
    throw interface_error(
        name(), Status::NO_SPACE_AVAILABLE,
        "there are " + std::to_string(CAPACITY) + " connections already, which is the maximum");
  }
  occupy(*place, peer, id);
  place->source = source;
  place->phase = Phase::CONNECTING;
  attempt(*place, monotonic_ns());
  wake();
  return *place;
}

int TcpEndpoint::await_attempt(std::unique_lock<std::mutex>& lock, const TcpConnection& connection,
                               std::uint64_t wait_ns) {
  const std::uintptr_t id = connection.id.load(std::memory_order_relaxed);
  const auto ended = [&] {
    return connection.phase == Phase::CLOSED || connection.id.load(std::memory_order_relaxed) != id;
  };
  const auto decided = [&] {
    return ended() || connection.phase != Phase::CONNECTING || connection.error != 0;
  };
  changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns), decided);
  if (ended()) return connection.error != 0 ? connection.error : ECONNABORTED;
  if (connection.phase != Phase::CONNECTING) return 0;
  return connection.error != 0 ? connection.error : EINPROGRESS;
}

std::uintptr_t TcpEndpoint::connect(const SocketAddress& peer, const SocketAddress& source) {
  std::unique_lock lock(mutex_);
  if (stopping_.load(std::memory_order_acquire))
    throw interface_error(name(), Status::NOT_READY, "the session is closed");
  const std::span places = used();
  const auto existing = std::find_if(places.begin(), places.end(), [&](const TcpConnection& each) {
    return each.phase != Phase::CLOSED && each.peer.key() == peer.key() &&
           each.source.key() == source.key();
  });
  const bool made = existing == places.end();
  TcpConnection& connection = made ? make(peer, source, next_connection_id()) : *existing;
  const std::uintptr_t id = connection.id.load(std::memory_order_relaxed);
  if (!made && connection.phase == Phase::CONNECTING && connection.error != 0) {
    // The earlier error is obsolete; try now whether the peer is available.
    connection.error = 0;
    if (!connection.pending.is_open()) attempt(connection, monotonic_ns());
    wake();
  }
  const int error = await_attempt(lock, connection, CONNECT_WAIT_NS);
  if (error == 0) return id;
  if (made && connection.id.load(std::memory_order_relaxed) == id &&
      connection.phase == Phase::CONNECTING) {
    connection.pending.close();
    connection.error = error;
    connection.phase = Phase::CLOSED;
    connection.closed_ns = monotonic_ns();
    changed_.notify_all();
  }
  throw socket_error(name(), "connect to", Transport::TCP, peer,
                     error == EINPROGRESS ? ETIMEDOUT : error);
}

// --- Server

void TcpEndpoint::listen() {
  listener_ = make_stream_socket(local());
  if (!listener_.is_open() || bind(listener_.fd(), local().data(), local().length()) != 0 ||
      ::listen(listener_.fd(), BACKLOG) != 0)
    throw socket_error(name(), "listen at", Transport::TCP, local(), errno);
}

void TcpEndpoint::accept_peers(std::uint64_t now) noexcept {
  const auto pause = [&](const std::string& why) {
    events_.forget(listener_.fd());
    accept_at_ns_ = now + ACCEPT_PAUSE_NS;
    if (!std::exchange(shortage_logged_, true))
      log_about(name(), LogLevel::WARN, "new peers are not accepted for now: " + why);
  };
  for (int i = 0; i < ACCEPTS_PER_EVENT; ++i) {
    TcpConnection* place = free_place(now);
    if (place == nullptr)
      return pause("there are " + std::to_string(CAPACITY) + " connections already");
    SocketAddress peer;
    socklen_t length = SocketAddress::CAPACITY;
    File socket = File::private_to_process([&] {
      return accept4(listener_.fd(), peer.data(), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    });
    if (socket.is_open()) {
      const bool full = size_.load(std::memory_order_relaxed) == CAPACITY;
      occupy(*place, peer, next_connection_id());
      established(*place, std::move(socket));
      shortage_logged_ = false;
      // Otherwise a peer that does not exist yet would cost another one its place.
      if (full) return;
    } else if (errno == EAGAIN) {
      return;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return pause(std::string(std::strerror(errno)) + "; `ulimit -n` raises the limit on files");
    }
  }
}

}  // namespace daqiri::sockets
