#include "engines/socket/tcp_reader.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "daqiri/error.h"
#include "engines/socket/tcp_keeper.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

/// Bytes of one read: more would leave the cache before the application sees them.
constexpr std::uint64_t MAX_READ = 1U << 20U;
constexpr std::uint32_t MIN_WANTED = 4;
constexpr int MAX_EVENTS = 64;
/// Busy connections are read so often before epoll is asked for others.
constexpr std::uint32_t PASSES_PER_POLL = 16;
/// Until a connection without room is looked at again.
constexpr long RETRY_NS = 500'000;
/// Older than any request to flush.
constexpr std::uint64_t STALE = 1;

}  // namespace

TcpReader::TcpReader(RxQueue& queue, TcpTable& table, TcpKeeper& keeper)
    : queue_(queue),
      table_(table),
      keeper_(keeper),
      segments_(static_cast<std::uint32_t>(queue.num_segments())),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  epoll_event event{EPOLLIN | EPOLLET, {.ptr = nullptr}};
  if (events_ < 0 || timer_ < 0 || epoll_ctl(events_, EPOLL_CTL_ADD, timer_, &event) != 0) {
    const int error = errno;
    if (events_ >= 0) ::close(events_);
    if (timer_ >= 0) ::close(timer_);
    throw Error(Status::GENERIC_FAILURE, "queue '" + queue.config().name_ +
                                             "': no epoll descriptor: " + std::strerror(error) +
                                             "; raise the limit on open files (ulimit -n)");
  }
  std::uint64_t limit = std::max<std::uint64_t>(MAX_READ / queue.max_packet_size(), 1);
  // What waits in the row is not to be missed by another queue of the region.
  for (std::uint32_t s = 0; s < segments_; ++s) {
    limit = std::min(limit, std::max<std::uint64_t>(
                                queue.region(static_cast<int>(s)).config().num_bufs_ / 8, 1));
  }
  ready_.reserve(TcpKeeper::MAX_CONNECTIONS);
  row_limit_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, MAX_ROW));
  want_ = std::min(MIN_WANTED, row_limit_);
  restore_lengths();
}

TcpReader::~TcpReader() {
  close();
  ::close(events_);
  ::close(timer_);
}

int TcpReader::add(TcpConnection& connection) noexcept {
  connection.ended.store(false, std::memory_order_release);
  epoll_event event{EPOLLIN | EPOLLRDHUP | EPOLLET, {.ptr = &connection}};
  if (epoll_ctl(events_, EPOLL_CTL_ADD, connection.read_fd, &event) == 0) return 0;
  const int error = errno;
  connection.ended.store(true, std::memory_order_release);
  return error;
}

// --- Row of buffers

void TcpReader::restore_lengths() noexcept {
  for (std::uint32_t i = 0; i < MAX_ROW; ++i) {
    for (std::uint32_t s = 0; s < segments_; ++s)
      vectors_[std::size_t{i} * segments_ + s].iov_len =
          queue_.segment_capacity(static_cast<int>(s));
  }
}

void TcpReader::bind(std::uint32_t packet, std::uint32_t segment) noexcept {
  vectors_[std::size_t{packet} * segments_ + segment].iov_base =
      queue_.region(static_cast<int>(segment)).address(buffers_[segment][packet]);
}

void TcpReader::fill() noexcept {
  if (row_ >= want_) return;
  std::array<std::uint32_t, MAX_NUM_SEGS> counts{};
  std::uint32_t n = want_ - row_;
  for (std::uint32_t s = 0; s < segments_; ++s) {
    counts[s] = queue_.region(static_cast<int>(s)).take(&buffers_[s][row_], n);
    n = counts[s];
  }
  for (std::uint32_t s = 0; s < segments_; ++s) {
    // A packet needs a buffer of every region.
    if (counts[s] > n)
      queue_.region(static_cast<int>(s)).give(&buffers_[s][row_ + n], counts[s] - n);
    for (std::uint32_t i = 0; i < n; ++i) bind(row_ + i, s);
  }
  row_ += n;
}

void TcpReader::consume(std::uint32_t packets) noexcept {
  row_ -= packets;
  for (std::uint32_t s = 0; s < segments_; ++s) {
    std::copy_n(&buffers_[s][packets], row_, buffers_[s].data());
    for (std::uint32_t i = 0; i < row_; ++i) bind(i, s);
  }
}

void TcpReader::close() noexcept {
  for (std::uint32_t s = 0; s < segments_; ++s)
    queue_.region(static_cast<int>(s)).give(buffers_[s].data(), row_);
  row_ = 0;
}

// --- Connections

void TcpReader::poll_events() noexcept {
  std::array<epoll_event, MAX_EVENTS> events;
  int n = MAX_EVENTS;
  while (n == MAX_EVENTS) {
    n = epoll_wait(events_, events.data(), MAX_EVENTS, 0);
    for (int i = 0; i < n; ++i) {
      auto* connection = static_cast<TcpConnection*>(events[static_cast<std::size_t>(i)].data.ptr);
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
  epoll_ctl(events_, EPOLL_CTL_DEL, connection.read_fd, nullptr);
  queue_.finish(*connection.channel);
  connection.read_error = error;
  connection.listed = false;
  connection.ended.store(true, std::memory_order_release);
  keeper_.wake();
}

std::uint32_t TcpReader::shorten(std::uint64_t bytes, std::uint32_t packets) noexcept {
  std::uint32_t vectors = 0;
  while (vectors < packets * segments_ && bytes > 0) {
    iovec& vector = vectors_[vectors++];
    vector.iov_len = std::min<std::uint64_t>(vector.iov_len, bytes);
    bytes -= vector.iov_len;
  }
  return vectors;
}

std::uint32_t TcpReader::deliver(TcpConnection& connection, std::uint64_t bytes,
                                 std::uint64_t timestamp) noexcept {
  ReceivedRun run;
  run.flow = connection.flow;
  run.timestamp = timestamp;
  const std::uint64_t full = queue_.max_packet_size();
  run.count = static_cast<std::uint32_t>((bytes + full - 1) / full);
  std::uint64_t left = bytes - (run.count - 1) * full;
  for (std::uint32_t s = 0; s < segments_; ++s) {
    run.buffers[s] = buffers_[s].data();
    run.lengths[s] = queue_.segment_capacity(static_cast<int>(s));
    run.last_lengths[s] = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, run.lengths[s]));
    left -= run.last_lengths[s];
  }
  queue_.deliver_run(*connection.channel, run);
  connection.channel->stream.offset += bytes;
  consume(run.count);
  return run.count;
}

std::uint32_t TcpReader::read(TcpConnection& connection, Outcome& outcome) noexcept {
  fill();
  const std::uint32_t n = std::min({queue_.room(*connection.channel), row_, want_});
  if (n == 0) {
    outcome = Outcome::BLOCKED;
    return 0;
  }
  const bool stale = connection.stale > 0;
  const std::uint32_t vectors = stale ? shorten(connection.stale, n) : n * segments_;
  const ssize_t result = readv(connection.read_fd, vectors_.data(), static_cast<int>(vectors));
  const int error = errno;
  if (stale) restore_lengths();
  if (result <= 0) {
    outcome = result == 0       ? Outcome::ENDED
              : error == EAGAIN ? Outcome::EMPTY
              : error == EINTR  ? Outcome::MORE
                                : Outcome::ENDED;
    if (outcome == Outcome::ENDED) end(connection, result == 0 ? 0 : error);
    return 0;
  }
  outcome = Outcome::MORE;
  const auto bytes = static_cast<std::uint64_t>(result);
  if (table_.last_heard.load(std::memory_order_relaxed) != &connection)
    table_.last_heard.store(&connection, std::memory_order_relaxed);
  const std::uint32_t packets = deliver(connection, bytes, stale ? STALE : realtime_ns());
  if (stale) {
    connection.stale -= bytes;
  } else if (bytes == std::uint64_t{n} * queue_.max_packet_size()) {
    want_ = std::min(want_ * 2, row_limit_);
  } else if (packets * 4 < want_) {
    want_ = std::max(want_ / 2, std::min(MIN_WANTED, row_limit_));
  }
  return packets;
}

std::uint32_t TcpReader::read_ready() noexcept {
  std::uint32_t seen = 0;
  blocked_ = false;
  std::size_t kept = 0;
  for (TcpConnection* connection : ready_) {
    Outcome outcome{};
    seen += read(*connection, outcome);
    if (outcome == Outcome::BLOCKED) blocked_ = true;
    if (outcome == Outcome::BLOCKED || outcome == Outcome::MORE) {
      ready_[kept++] = connection;
    } else if (outcome == Outcome::EMPTY) {
      connection->listed = false;
    }
  }
  ready_.resize(kept);
  // Another is the first to find buffers next time.
  if (blocked_ && kept > 1) std::rotate(ready_.begin(), ready_.begin() + 1, ready_.end());
  return seen;
}

void TcpReader::mark_stale() noexcept {
  // Connections that are not ready have nothing in the kernel.
  poll_events();
  for (TcpConnection* connection : ready_) {
    int bytes = 0;
    if (ioctl(connection->read_fd, FIONREAD, &bytes) == 0 && bytes > 0)
      connection->stale = static_cast<std::uint64_t>(bytes);
  }
}

void TcpReader::wait_for_room() noexcept {
  if (timer_set_) return;
  // What waits for more packets holds buffers that nobody can give back.
  queue_.flush_open();
  itimerspec when{};
  when.it_value.tv_nsec = RETRY_NS;
  timer_set_ = timerfd_settime(timer_, 0, &when, nullptr) == 0;
}

std::uint32_t TcpReader::receive() noexcept {
  if (queue_.flushing()) mark_stale();
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

}  // namespace daqiri::sockets
