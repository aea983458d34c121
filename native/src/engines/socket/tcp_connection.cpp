#include "engines/socket/tcp_endpoint.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "burst/burst.h"
#include "io/packet_buffers.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

/// Bytes per read: more would leave the cache before the application reads them.
constexpr std::uint64_t MAX_READ = 1U << 20U;
constexpr std::uint32_t MIN_WANTED = 4;
/// Number of reads from busy connections before epoll is checked for others.
constexpr std::uint32_t PASSES_PER_POLL = 16;
/// Time until a connection without free buffers is tried again.
constexpr std::uint64_t RETRY_NS = 500'000;

/// Bytes that were written and do not fit the peer's window yet.
std::uint64_t bytes_waiting(int fd) noexcept {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQNSD, &bytes) == 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

/// Discards the socket's data and resets the connection immediately; the descriptor stays valid,
/// because its poller may be reading. Uses syscall, because TSan treats connect(2) as the creation
/// of a descriptor.
void reset_socket(int fd) noexcept {
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  syscall(SYS_connect, fd, &nobody, sizeof nobody);
}

}  // namespace

TcpReader::TcpReader(RxQueue& queue, TcpEndpoint& endpoint, steering::FlowTally& tally)
    : queue_(queue),
      endpoint_(endpoint),
      tally_(tally),
      segments_(static_cast<std::uint32_t>(queue.num_segments())),
      events_("queue '" + queue.config().common_.name_ + "'") {
  std::uint64_t limit = std::max<std::uint64_t>(MAX_READ / queue.max_packet_size(), 1);
  // Limits the buffers that wait here, so that other queues of the region have enough.
  for (std::uint32_t s = 0; s < segments_; ++s) {
    limit = std::min(limit, std::max<std::uint64_t>(
                                queue.region(static_cast<int>(s)).config().num_bufs_ / 8, 1));
  }
  ready_.reserve(TcpEndpoint::CAPACITY);
  limit_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, MAX_PACKETS));
  want_ = std::min(MIN_WANTED, limit_);
}

int TcpReader::add(TcpConnection& connection) noexcept {
  connection.ended.store(false, std::memory_order_release);
  const int error = events_.watch(connection.read_fd, EPOLLIN | EPOLLRDHUP | EPOLLET, &connection);
  if (error != 0) connection.ended.store(true, std::memory_order_release);
  return error;
}

// --- TcpReader: buffers

void TcpReader::consume(std::uint32_t packets) noexcept {
  filled_ -= packets;
  for (std::uint32_t s = 0; s < segments_; ++s)
    std::copy_n(&buffers_[s][packets], filled_, buffers_[s].data());
}

void TcpReader::close() noexcept {
  for (std::uint32_t s = 0; s < segments_; ++s)
    queue_.region(static_cast<int>(s)).give(buffers_[s].data(), filled_);
  filled_ = 0;
}

// --- TcpReader: connections

void TcpReader::poll_events() noexcept {
  std::array<epoll_event, 64> events;
  std::size_t n = events.size();
  while (n == events.size()) {
    n = events_.take(events);
    for (std::size_t i = 0; i < n; ++i) {
      auto* connection = static_cast<TcpConnection*>(events[i].data.ptr);
      if (connection == nullptr) {
        timer_set_ = false;
      } else if (!connection->listed && !connection->ended.load(std::memory_order_acquire)) {
        connection->listed = true;
        ready_.push_back(connection);
      }
    }
  }
}

void TcpReader::end(TcpConnection& connection, int error) noexcept {
  events_.forget(connection.read_fd);
  queue_.finish(*connection.rx_source);
  connection.read_error = error;
  connection.listed = false;
  connection.ended.store(true, std::memory_order_release);
  endpoint_.wake();
}

std::uint32_t TcpReader::deliver(TcpConnection& connection, std::uint64_t bytes) noexcept {
  RxSource& source = *connection.rx_source;
  RxBatch batch;
  batch.flows.constant = connection.flow;
  batch.times.constant = realtime_ns();
  std::uint32_t packets = 0;
  // Full packets, then the rest.
  while (bytes > 0) {
    std::uint64_t left = std::min<std::uint64_t>(bytes, queue_.max_packet_size());
    batch.count = static_cast<std::uint32_t>(bytes / left);
    bytes -= batch.count * left;
    const std::uint64_t offset = source.stream.offset + batch.count * left;
    tally_.count(connection.flow_position, batch.count, batch.count * left);
    for (std::uint32_t s = 0; s < segments_; ++s) {
      const auto length = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(left, queue_.segment_capacity(static_cast<int>(s))));
      batch.segments[s].buffers = buffers_[s].data();
      batch.segments[s].lengths.constant = length;
      left -= length;
    }
    queue_.deliver(source, batch);
    source.stream.offset = offset;
    consume(batch.count);
    packets += batch.count;
  }
  return packets;
}

std::uint32_t TcpReader::discard(TcpConnection& connection, std::uint64_t bytes) noexcept {
  const std::uint64_t full = queue_.max_packet_size();
  const std::uint64_t packets = (bytes + full - 1) / full;
  connection.stale -= bytes;
  connection.rx_source->stream.offset += bytes;
  tally_.count(connection.flow_position, packets, bytes);
  queue_.drop(stale_reason_, packets, bytes);
  return static_cast<std::uint32_t>(packets);
}

TcpReader::Outcome TcpReader::read(TcpConnection& connection, std::uint32_t& seen) noexcept {
  const bool stale = connection.stale > 0;
  std::uint32_t n = 0;
  if (!stale) {
    if (filled_ < want_) filled_ += take_buffers(queue_, buffers_.data(), filled_, want_ - filled_);
    n = std::min({queue_.room(*connection.rx_source), filled_, want_});
    if (n == 0 && connection.reset.load(std::memory_order_acquire)) {
      end(connection, ECONNABORTED);
      return Outcome::EMPTY_OR_ENDED;
    }
    if (n == 0) return Outcome::BLOCKED;
  }
  iovec* vector = vectors_.data();
  for (std::uint32_t i = 0; i < n; ++i) {
    for (int s = 0; s < queue_.num_segments(); ++s)
      *vector++ = {queue_.region(s).address(buffers_[static_cast<std::size_t>(s)][i]),
                   queue_.segment_capacity(s)};
  }
  // Discarded bytes need no buffer (MSG_TRUNC, tcp(7)).
  const ssize_t result =
      stale ? recv(connection.read_fd, nullptr, std::min(connection.stale, MAX_READ), MSG_TRUNC)
            : readv(connection.read_fd, vectors_.data(), static_cast<int>(n * segments_));
  if (result <= 0) {
    if (result < 0 && errno == EINTR) return Outcome::MORE;
    if (result < 0 && errno == EAGAIN) {
      connection.listed = false;
    } else {
      end(connection, result == 0 ? 0 : errno);
    }
    return Outcome::EMPTY_OR_ENDED;
  }
  const auto bytes = static_cast<std::uint64_t>(result);
  if (endpoint_.latest_peer.load(std::memory_order_relaxed) != &connection)
    endpoint_.latest_peer.store(&connection, std::memory_order_relaxed);
  const std::uint32_t packets = stale ? discard(connection, bytes) : deliver(connection, bytes);
  seen += packets;
  if (!stale && bytes == std::uint64_t{n} * queue_.max_packet_size()) {
    want_ = std::min(want_ * 2, limit_);
  } else if (!stale && packets * 4 < want_) {
    want_ = std::max(want_ / 2, std::min(MIN_WANTED, limit_));
  }
  return Outcome::MORE;
}

std::uint32_t TcpReader::read_ready() noexcept {
  std::uint32_t seen = 0;
  blocked_ = false;
  std::size_t kept = 0;
  for (TcpConnection* connection : ready_) {
    const Outcome outcome = read(*connection, seen);
    blocked_ = blocked_ || outcome == Outcome::BLOCKED;
    if (outcome != Outcome::EMPTY_OR_ENDED) ready_[kept++] = connection;
  }
  ready_.resize(kept);
  // Rotate, so that each connection in turn is the first to find buffers.
  if (blocked_ && kept > 1) std::rotate(ready_.begin(), ready_.begin() + 1, ready_.end());
  return seen;
}

void TcpReader::mark_stale(DropReason reason) noexcept {
  stale_reason_ = reason;
  // Connections that are not ready have no data in the kernel.
  poll_events();
  for (TcpConnection* connection : ready_) {
    int bytes = 0;
    if (ioctl(connection->read_fd, FIONREAD, &bytes) == 0 && bytes > 0)
      connection->stale = static_cast<std::uint64_t>(bytes);
  }
}

void TcpReader::wait_for_room() noexcept {
  if (timer_set_) return;
  // Otherwise nothing would free the buffers of open bursts.
  queue_.deliver_open();
  if (filled_ == 0) queue_.note_shortage();
  events_.wake(RETRY_NS);
  timer_set_ = true;
}

std::uint32_t TcpReader::receive() noexcept {
  // Once per request, because later data must not be discarded for it.
  if (queue_.discarding() &&
      std::exchange(discard_request_, queue_.discard_request()) != queue_.discard_request())
    mark_stale(queue_.discard_reason());
  const bool polled = idle_ || ready_.empty() || ++passes_ % PASSES_PER_POLL == 0;
  if (polled) poll_events();
  std::uint32_t seen = read_ready();
  if (seen == 0 && !polled) {
    poll_events();
    seen = read_ready();
  }
  idle_ = seen == 0;
  if (idle_ && blocked_) wait_for_room();
  return seen;
}

// --- TcpSender

TcpSender::TcpSender(TcpEndpoint& endpoint, std::uint32_t max_payload)
    : endpoint_(endpoint),
      max_length_(max_payload != 0 ? max_payload : std::numeric_limits<std::uint32_t>::max()),
      events_("a TCP transmit queue"),
      written_(TcpEndpoint::CAPACITY) {}

TcpConnection* TcpSender::connection_of(const Burst& burst) noexcept {
  std::uintptr_t id = burst.connection_id;
  if (id == 0 || id == endpoint_.connection()) {
    if (!endpoint_.client()) return endpoint_.latest_peer.load(std::memory_order_relaxed);
    id = endpoint_.connection();
  }
  if (latest_ == nullptr || latest_->id.load(std::memory_order_relaxed) != id)
    latest_ = endpoint_.find(id);
  return latest_;
}

std::uint32_t TcpSender::gather(const Burst& burst, std::uint32_t first, std::uint32_t count,
                                std::size_t& vectors) noexcept {
  const auto segments = static_cast<std::uint32_t>(burst.hdr.hdr.num_segs);
  std::uint32_t skip = cut_ != nullptr ? cut_at_ : 0;
  vectors = 0;
  std::uint32_t n = 0;
  for (; n < count && vectors + segments <= vectors_.size(); ++n) {
    if (burst.packet_length(first + n) > max_length_) break;
    for (std::uint32_t s = 0; s < segments; ++s) {
      const std::uint32_t length = burst.pkt_lens[s][first + n];
      const std::uint32_t past = std::min(skip, length);
      skip -= past;
      if (length == past) continue;
      vectors_[vectors++] = {static_cast<std::byte*>(burst.pkts[s][first + n]) + past,
                             length - past};
    }
  }
  return n;
}

TransmitResult TcpSender::count_sent(const Burst& burst, std::uint32_t first, std::uint32_t ready,
                                     std::uint64_t bytes) noexcept {
  TransmitResult result;
  bytes += cut_ != nullptr ? cut_at_ : 0;
  while (result.sent < ready) {
    const std::uint32_t length = burst.packet_length(first + result.sent);
    if (length > bytes) break;
    bytes -= length;
    result.bytes += length;
    ++result.sent;
  }
  cut_at_ = static_cast<std::uint32_t>(bytes);
  return result;
}

void TcpSender::wait_for(const TcpConnection& connection) noexcept {
  waiting_ = events_.watch(connection.socket.fd(), EPOLLOUT | EPOLLONESHOT) == 0;
}

bool TcpSender::settle(bool last) noexcept {
  bool settled = true;
  for (TcpConnection& each : endpoint_.used()) {
    Written& written = written_[endpoint_.place_of(each)];
    if (written.until == 0) continue;
    const std::lock_guard lock(each.sending);
    const bool cut = cut_ == &each;
    const bool open = written.generation == each.generation && each.socket.is_open() &&
                      !each.send_failed.load(std::memory_order_relaxed);
    const bool waits = open && (cut || each.bytes_sent.load(std::memory_order_relaxed) -
                                               bytes_waiting(each.socket.fd()) <
                                           written.until);
    if (waits && !last) {
      settled = false;
      continue;
    }
    if (waits) {
      reset_socket(each.socket.fd());
      each.reset.store(true, std::memory_order_release);
      each.send_failed.store(true, std::memory_order_release);
      endpoint_.wake();
    }
    if (cut) cut_ = nullptr;
    if (each.unfinished == this) each.unfinished = nullptr;
    written.until = 0;
  }
  return settled;
}

TransmitResult TcpSender::send(const Burst& burst, std::uint32_t first,
                               std::uint32_t count) noexcept {
  if (waiting_) {
    std::array<epoll_event, 8> events;
    waiting_ = events_.take(events) == 0;
  }
  TcpConnection* connection = cut_ != nullptr ? cut_ : connection_of(burst);
  if (connection == nullptr) return {.failed = count, .error = EDESTADDRREQ};
  const std::lock_guard lock(connection->sending);
  const bool client = endpoint_.client();
  // For a server, whose places are reused by other peers.
  const std::uintptr_t id = burst.connection_id;
  const bool other = !client && cut_ == nullptr && id != 0 && id != endpoint_.connection() &&
                     connection->id.load(std::memory_order_relaxed) != id;
  if (cut_ != nullptr && cut_generation_ != connection->generation) {
    // The peer has received a part of this packet, and will never receive the rest.
    cut_ = nullptr;
    return {.failed = 1, .error = ECONNRESET};
  }
  const bool gone = other || !connection->socket.is_open() ||
                    connection->send_failed.load(std::memory_order_relaxed);
  if (gone && client) {
    waiting_ = true;
    return {.unconnected = true};
  }
  if (gone) {
    cut_ = nullptr;
    if (connection->unfinished == this) connection->unfinished = nullptr;
    return {.failed = count, .error = ENOTCONN};
  }
  if (connection->unfinished != nullptr && connection->unfinished != this) {
    wait_for(*connection);
    return {};
  }
  std::size_t vectors = 0;
  const std::uint32_t ready = gather(burst, first, std::min(count, RUN), vectors);
  if (ready == 0) return too_long(burst, first, count, max_length_);
  if (vectors == 0) return {.sent = ready};
  msghdr message{};
  message.msg_iov = vectors_.data();
  message.msg_iovlen = vectors;
  ssize_t n = 0;
  do {
    n = sendmsg(connection->socket.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
      wait_for(*connection);
    } else {
      connection->send_failed.store(true, std::memory_order_release);
      endpoint_.wake();
    }
    return {};
  }
  connection->bytes_sent.store(
      connection->bytes_sent.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(n),
      std::memory_order_relaxed);
  written_[endpoint_.place_of(*connection)] = {
      connection->generation, connection->bytes_sent.load(std::memory_order_relaxed)};
  const TransmitResult result = count_sent(burst, first, ready, static_cast<std::uint64_t>(n));
  cut_ = cut_at_ > 0 ? connection : nullptr;
  cut_generation_ = connection->generation;
  connection->unfinished = cut_ != nullptr ? this : nullptr;
  return result;
}

}  // namespace daqiri::sockets
