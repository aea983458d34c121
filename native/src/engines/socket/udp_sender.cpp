#include "engines/socket/udp_sender.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace daqiri::sockets {

namespace {

/// What fits an IP packet beside its headers (IPv6: jumbograms are not used).
constexpr std::uint32_t MAX_IPV4_PAYLOAD = 65507;
constexpr std::uint32_t MAX_IPV6_PAYLOAD = 65527;
constexpr int WAIT_MS = 2;

}  // namespace

UdpSender::UdpSender(const UdpSocket& socket, const PeerTable& peers, std::uint32_t max_payload,
                     std::uintptr_t server_connection)
    : socket_(socket),
      peers_(peers),
      max_length_(socket.local().ipv6() ? MAX_IPV6_PAYLOAD : MAX_IPV4_PAYLOAD),
      server_connection_(server_connection) {
  if (max_payload != 0) max_length_ = std::min(max_length_, max_payload);
  for (std::uint32_t i = 0; i < BATCH; ++i)
    messages_[i].msg_hdr.msg_iov = &vectors_[std::size_t{i} * MAX_NUM_SEGS];
}

bool UdpSender::find_destination(const Burst& burst) noexcept {
  const std::uintptr_t connection = burst.connection_id;
  if (socket_.client()) {
    destination_ = {};
    return connection == 0 || connection == peers_[0].connection;
  }
  if (connection == 0 || connection == server_connection_) {
    destination_ = peers_.last_heard();
  } else {
    const std::uint32_t peer = peers_.find(connection);
    destination_ = peer == PeerTable::NONE ? SocketAddress() : peers_[peer].address;
  }
  return destination_.given();
}

std::uint32_t UdpSender::gather(const Burst& burst, std::uint32_t first,
                                std::uint32_t count) noexcept {
  const int segments = burst.hdr.hdr.num_segs;
  const bool addressed = destination_.given();
  std::uint32_t n = 0;
  for (; n < count; ++n) {
    if (burst.packet_length(first + n) > max_length_) break;
    msghdr& header = messages_[n].msg_hdr;
    header.msg_name = addressed ? destination_.data() : nullptr;
    header.msg_namelen = addressed ? destination_.length() : 0;
    header.msg_iovlen = static_cast<std::size_t>(segments);
    for (int s = 0; s < segments; ++s)
      header.msg_iov[s] = {burst.pkts[s][first + n], burst.pkt_lens[s][first + n]};
  }
  return n;
}

TransmitResult UdpSender::send(const Burst& burst, std::uint32_t first,
                               std::uint32_t count) noexcept {
  TransmitResult result;
  count = std::min(count, BATCH);
  if (!find_destination(burst)) {
    result.failed = count;
    return result;
  }
  const std::uint32_t ready = gather(burst, first, count);
  if (ready == 0) {
    while (result.failed < count && burst.packet_length(first + result.failed) > max_length_)
      ++result.failed;
    return result;
  }
  bool waited = false;
  bool retried = false;
  for (;;) {
    const int n = sendmmsg(socket_.fd(), messages_.data(), ready, MSG_DONTWAIT);
    if (n > 0) {
      result.sent = static_cast<std::uint32_t>(n);
      for (int i = 0; i < n; ++i) result.bytes += messages_[static_cast<std::size_t>(i)].msg_len;
      return result;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd room{socket_.fd(), POLLOUT, 0};
      if (waited || poll(&room, 1, WAIT_MS) < 0) return result;
      waited = true;
      continue;
    }
    // ECONNREFUSED tells of an earlier packet that met no listener; it is cleared by being told. Of
    // the first packet of this run it says nothing, nor does a device queue that was full
    // (ENOBUFS).
    if ((errno == ECONNREFUSED || errno == ENOBUFS) && !retried) {
      retried = true;
      continue;
    }
    result.failed = 1;
    return result;
  }
}

}  // namespace daqiri::sockets
