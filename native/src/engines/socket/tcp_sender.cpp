#include "engines/socket/tcp_sender.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "burst/burst.h"
#include "engines/socket/tcp_connections.h"

namespace daqiri::sockets {

TcpSender::TcpSender(TcpConnections& connections, bool client, std::uint32_t max_payload,
                     std::uintptr_t own)
    : connections_(connections),
      client_(client),
      max_length_(max_payload != 0 ? max_payload : std::numeric_limits<std::uint32_t>::max()),
      own_(own),
      events_("a TCP transmit queue") {}

TcpConnection* TcpSender::connection_of(const Burst& burst) noexcept {
  std::uintptr_t id = burst.connection_id;
  if (id == 0 || id == own_) {
    if (!client_) return connections_.latest_peer.load(std::memory_order_relaxed);
    id = own_;
  }
  if (latest_ == nullptr || latest_->id.load(std::memory_order_relaxed) != id)
    latest_ = connections_.find(id);
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

void TcpSender::count(const Burst& burst, std::uint32_t first, std::uint32_t ready,
                      std::uint64_t bytes, TransmitResult& result) noexcept {
  bytes += cut_ != nullptr ? cut_at_ : 0;
  while (result.sent < ready) {
    const std::uint32_t length = burst.packet_length(first + result.sent);
    if (length > bytes) break;
    bytes -= length;
    result.bytes += length;
    ++result.sent;
  }
  cut_at_ = static_cast<std::uint32_t>(bytes);
}

void TcpSender::wait_for(const TcpConnection& connection) noexcept {
  waiting_ = events_.watch(connection.socket.fd(), EPOLLOUT | EPOLLONESHOT) == 0;
}

TransmitResult TcpSender::send(const Burst& burst, std::uint32_t first,
                               std::uint32_t count) noexcept {
  TransmitResult result;
  if (waiting_) {
    std::array<epoll_event, 8> events;
    waiting_ = events_.take(events) == 0;
  }
  TcpConnection* connection = cut_ != nullptr ? cut_ : connection_of(burst);
  if (connection == nullptr) {
    result.failed = count;
    result.error = EDESTADDRREQ;
    return result;
  }
  const std::lock_guard lock(connection->sending);
  // Of a server, whose places are used again by other peers.
  const std::uintptr_t id = burst.connection_id;
  const bool other = !client_ && cut_ == nullptr && id != 0 && id != own_ &&
                     connection->id.load(std::memory_order_relaxed) != id;
  if (cut_ != nullptr && cut_generation_ != connection->generation) {
    // The peer has a part of this packet, and will never have the rest.
    cut_ = nullptr;
    result.failed = 1;
    result.error = ECONNRESET;
    return result;
  }
  const bool gone = other || !connection->socket.is_open() ||
                    connection->send_failed.load(std::memory_order_relaxed);
  if (gone && client_) {
    result.unconnected = true;
    waiting_ = true;
    return result;
  }
  if (gone) {
    cut_ = nullptr;
    if (connection->unfinished == this) connection->unfinished = nullptr;
    result.failed = count;
    result.error = ENOTCONN;
    return result;
  }
  if (connection->unfinished != nullptr && connection->unfinished != this) {
    wait_for(*connection);
    return result;
  }
  std::size_t vectors = 0;
  const std::uint32_t ready = gather(burst, first, std::min(count, RUN), vectors);
  if (ready == 0) {
    while (result.failed < count && burst.packet_length(first + result.failed) > max_length_)
      ++result.failed;
    result.error = EMSGSIZE;
    return result;
  }
  if (vectors == 0) {
    result.sent = ready;
    return result;
  }
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
      return result;
    }
    connection->send_failed.store(true, std::memory_order_release);
    connections_.wake();
    return result;
  }
  connection->bytes_sent.store(
      connection->bytes_sent.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(n),
      std::memory_order_relaxed);
  this->count(burst, first, ready, static_cast<std::uint64_t>(n), result);
  cut_ = cut_at_ > 0 ? connection : nullptr;
  cut_generation_ = connection->generation;
  connection->unfinished = cut_ != nullptr ? this : nullptr;
  return result;
}

}  // namespace daqiri::sockets
