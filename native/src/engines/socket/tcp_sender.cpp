#include "engines/socket/tcp_endpoint.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "burst/burst.h"

namespace daqiri::sockets {

TcpSender::TcpSender(TcpEndpoint& endpoint, std::uint32_t max_payload)
    : endpoint_(endpoint),
      max_length_(max_payload != 0 ? max_payload : std::numeric_limits<std::uint32_t>::max()),
      events_("a TCP transmit queue") {}

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
  // Of a server, whose places are used again by other peers.
  const std::uintptr_t id = burst.connection_id;
  const bool other = !client && cut_ == nullptr && id != 0 && id != endpoint_.connection() &&
                     connection->id.load(std::memory_order_relaxed) != id;
  if (cut_ != nullptr && cut_generation_ != connection->generation) {
    // The peer has a part of this packet, and will never have the rest.
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
  const TransmitResult result = count_sent(burst, first, ready, static_cast<std::uint64_t>(n));
  cut_ = cut_at_ > 0 ? connection : nullptr;
  cut_generation_ = connection->generation;
  connection->unfinished = cut_ != nullptr ? this : nullptr;
  return result;
}

}  // namespace daqiri::sockets
