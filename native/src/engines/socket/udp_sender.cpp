#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engines/socket/udp_queues.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

/// Packets that are refused for longer than this, and those after them until one is accepted,
/// cannot be sent.
constexpr std::uint64_t MOST_REFUSED_NS = 2'000'000'000;

/// A refused packet is tried again within this time.
constexpr std::uint64_t RETRIED_NS = 500'000'000;

/// An error that is returned as often as this is that of the packet.
constexpr int MOST_ATTEMPTS = 8;

/// Longest payload of an IP packet (without IPv6 jumbograms).
constexpr std::uint32_t MAX_IPV4_PAYLOAD = 65507;
constexpr std::uint32_t MAX_IPV6_PAYLOAD = 65527;

void init_control(std::byte* bytes, int level, int type, std::size_t payload) {
  auto& header = *reinterpret_cast<cmsghdr*>(bytes);
  header.cmsg_level = level;
  header.cmsg_type = type;
  header.cmsg_len = CMSG_LEN(payload);
}

}  // namespace

UdpSender::UdpSender(const UdpSocket& socket, const UdpPeers& peers, std::uint32_t max_payload,
                     std::uintptr_t connection, UdpLaunch* launch, bool segments)
    : socket_(socket),
      peers_(peers),
      max_message_(socket.local().ipv6() ? MAX_IPV6_PAYLOAD : MAX_IPV4_PAYLOAD),
      max_length_(max_payload == 0 ? max_message_ : std::min(max_message_, max_payload)),
      segment_limit_(segments ? max_length_ + 1 : 0),
      connection_(connection),
      launch_(launch),
      events_("udp://" + socket.local().text()) {
  for (std::uint32_t i = 0; i < MESSAGES; ++i) {
    messages_[i].msg_hdr.msg_control =
        launch_ != nullptr ? controls_[i].stamp : controls_[i].segment;
    init_control(controls_[i].stamp, SOL_SOCKET, SCM_TXTIME, sizeof(std::uint64_t));
    init_control(controls_[i].segment, SOL_UDP, UDP_SEGMENT, sizeof(std::uint16_t));
  }
}

bool UdpSender::find_destination(const Burst& burst) noexcept {
  const std::uintptr_t connection = burst.connection_id;
  destination_ = {};
  if (socket_.client()) return connection == 0 || connection == connection_;
  if (connection == 0 || connection == connection_) {
    destination_ = peers_.latest();
    return destination_.given();
  }
  if (connection != latest_) {
    const auto peer = peers_.find(connection);
    if (!peer.has_value()) return false;
    latest_ = connection;
    latest_address_ = SocketAddress(peer->address);
  }
  destination_ = latest_address_;
  return true;
}

std::uint32_t UdpSender::run_length(const Burst& burst, std::uint32_t first, std::uint32_t count,
                                    std::uint64_t stamp) const noexcept {
  const std::uint32_t length = burst.packet_length(first);
  if (length == 0 || length >= segment_limit_) return 1;
  const std::uint32_t limit = std::min({count, MAX_SEGMENTS, max_message_ / length});
  for (std::uint32_t n = 1; n < limit; ++n) {
    if (launch_ != nullptr && !launch_->shares(burst.timestamps[first + n], stamp)) return n;
    const std::uint32_t next = burst.packet_length(first + n);
    if (next == length) continue;
    return next < length && next > 0 ? n + 1 : n;
  }
  return std::max(limit, 1U);
}

void UdpSender::set_controls(std::uint32_t message, std::uint64_t stamp) noexcept {
  Controls& controls = controls_[message];
  std::size_t length = 0;
  if (launch_ != nullptr) {
    std::memcpy(CMSG_DATA(reinterpret_cast<cmsghdr*>(controls.stamp)), &stamp, sizeof(stamp));
    length += sizeof(controls.stamp);
  }
  if (packets_[message] > 1) {
    const auto size = static_cast<std::uint16_t>(lengths_[message]);
    std::memcpy(CMSG_DATA(reinterpret_cast<cmsghdr*>(controls.segment)), &size, sizeof(size));
    length += sizeof(controls.segment);
  }
  messages_[message].msg_hdr.msg_controllen = length;
}

void UdpSender::gather(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept {
  const auto segments = static_cast<std::uint32_t>(burst.hdr.hdr.num_segs);
  const bool addressed = destination_.given();
  iovec* vector = vectors_.data();
  gathered_ = 0;
  std::uint32_t room = MESSAGES;
  if (launch_ != nullptr) {
    launch_->begin();
    room = std::min(room, launch_->room());
  }
  for (std::uint32_t done = 0; done < count && gathered_ < room;) {
    const std::uint32_t length = burst.packet_length(first + done);
    if (length > max_length_) break;
    const std::uint64_t stamp =
        launch_ == nullptr ? 0 : launch_->stamp(burst.timestamps[first + done]);
    const std::uint32_t n = run_length(burst, first + done, count - done, stamp);
    packets_[gathered_] = n;
    lengths_[gathered_] = length;
    msghdr& header = messages_[gathered_].msg_hdr;
    header.msg_name = addressed ? destination_.data() : nullptr;
    header.msg_namelen = addressed ? destination_.length() : 0;
    header.msg_iov = vector;
    header.msg_iovlen = std::size_t{n} * segments;
    stamps_[gathered_] = stamp;
    set_controls(gathered_, stamp);
    for (std::uint32_t i = first + done; i < first + done + n; ++i) {
      for (std::uint32_t s = 0; s < segments; ++s)
        *vector++ = {burst.pkts[s][i], burst.pkt_lens[s][i]};
    }
    done += n;
    ++gathered_;
  }
}

bool UdpSender::stop_segmenting(int error) noexcept {
  if (packets_[0] == 1) return false;
  if (error == EINVAL || error == EMSGSIZE) {
    // Longer than the path allows without fragmentation, or more segments than this kernel
    // supports.
    segment_limit_ = lengths_[0];
    return true;
  }
  // The device does not compute checksums, or this kernel has no UDP_SEGMENT.
  if (error != EIO && error != EOPNOTSUPP && error != ENOPROTOOPT) return false;
  segment_limit_ = 0;
  return true;
}

TransmitResult UdpSender::send(const Burst& burst, std::uint32_t first,
                               std::uint32_t count) noexcept {
  std::array<epoll_event, 2> events;
  if (waiting_ && events_.take(events) > 0) waiting_ = false;
  if (waiting_) return {};
  count = std::min(count, BATCH);
  if (!find_destination(burst)) return {.failed = count, .error = EDESTADDRREQ};
  gather(burst, first, count);
  if (gathered_ == 0) {
    const TransmitResult result = too_long(burst, first, count, max_length_);
    if (result.failed == 0) {
      waiting_ = true;
      events_.wake(launch_->until_room());
    }
    return result;
  }
  for (int attempt = 1;; ++attempt) {
    const int n = sendmmsg(socket_.fd(), messages_.data(), gathered_, MSG_DONTWAIT);
    if (n > 0) return count_sent(static_cast<std::size_t>(n));
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      waiting_ = events_.watch(socket_.fd(), EPOLLOUT | EPOLLONESHOT) == 0;
      return {};
    }
    if (errno == ENOBUFS) return refused();
    const int error = errno;
    // The error of an earlier packet (ECONNREFUSED: no socket received it), also one of another
    // queue, is returned by the next call, which sends nothing.
    socket_.discard_reports();
    if (attempt < MOST_ATTEMPTS) continue;
    if (!stop_segmenting(error)) return {.failed = packets_[0], .error = error};
    gather(burst, first, count);
  }
}

TransmitResult UdpSender::refused() noexcept {
  // The queueing discipline, or a device without one, is full. Or it never takes such a packet: tbf
  // refuses one that is longer than its burst.
  const std::uint64_t now = monotonic_ns();
  // What was refused long ago may have been flushed.
  if (now - refused_at_ > RETRIED_NS) refused_since_ = now;
  refused_at_ = now;
  if (now - refused_since_ < MOST_REFUSED_NS) return {.device_full = true};
  return {.failed = packets_[0], .error = ENOBUFS};
}

TransmitResult UdpSender::count_sent(std::size_t messages) noexcept {
  refused_at_ = 0;
  // The call was ended by the error of an earlier packet.
  if (messages < gathered_) socket_.discard_reports();
  TransmitResult result;
  for (std::size_t i = 0; i < messages; ++i) {
    if (launch_ != nullptr) {
      launch_->handed(stamps_[i], packets_[i], messages_[i].msg_len);
      result.kept += packets_[i];
    } else {
      result.sent += packets_[i];
      result.bytes += messages_[i].msg_len;
    }
  }
  return result;
}

}  // namespace daqiri::sockets
