#include "engines/packet/sender.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "burst/burst.h"
#include "timing/clock.h"

namespace daqiri::packet {

namespace {

constexpr std::uint32_t SOURCE_AT = 6;

}  // namespace

Sender::Sender(const NetworkInterface& interface, const TxQueue& queue,
               const steering::TransmitFlows& flows)
    : interface_(interface),
      fills_source_mac_(queue.has_offload("tx_eth_src")),
      flows_(flows),
      socket_(open_packet_socket(interface)),
      headers_(std::size_t{BATCH} * flows.most_headers()) {
  const int bypass = 1;
  if (setsockopt(fd(), SOL_PACKET, PACKET_QDISC_BYPASS, &bypass, sizeof bypass) != 0)
    throw packet_error(interface, "send past the queueing discipline", errno);
  // The first requires CAP_NET_ADMIN; the second is limited by net.core.wmem_max.
  if (setsockopt(fd(), SOL_SOCKET, SO_SNDBUFFORCE, &SEND_BUFFER, sizeof SEND_BUFFER) != 0)
    setsockopt(fd(), SOL_SOCKET, SO_SNDBUF, &SEND_BUFFER, sizeof SEND_BUFFER);
  bind_packet_socket(socket_, interface, 0);
}

bool Sender::link_is_down() noexcept {
  constexpr std::uint64_t AGAIN_NS = 10'000'000;
  const std::uint64_t now = monotonic_ns();
  if (now - asked_ns_ < AGAIN_NS) return down_;
  asked_ns_ = now;
  ifreq request{};
  request.ifr_ifindex = interface_.index;
  // Look up the current name, which may have changed.
  down_ = ioctl(fd(), SIOCGIFNAME, &request) == 0 && ioctl(fd(), SIOCGIFFLAGS, &request) == 0 &&
          (request.ifr_flags & IFF_RUNNING) == 0;
  return down_;
}

int Sender::prepare(const Burst& burst, std::uint32_t packet, std::uint32_t message) noexcept {
  if (fills_source_mac_ && burst.pkt_lens[0][packet] >= ADDRESSES_SIZE) {
    std::memcpy(static_cast<std::uint8_t*>(burst.pkts[0][packet]) + SOURCE_AT,
                interface_.mac.data(), interface_.mac.size());
  }
  Pieces& pieces = packets_[message];
  std::uint8_t* headers = headers_.data() + std::size_t{message} * flows_.most_headers();
  const int error = flows_.transform(burst, packet, headers, pieces);
  messages_[message].msg_hdr.msg_iov = pieces.at.data();
  messages_[message].msg_hdr.msg_iovlen = pieces.count;
  return error;
}

TransmitResult Sender::send(Burst& burst, std::uint32_t first, std::uint32_t count) noexcept {
  count = std::min(count, BATCH);
  TransmitResult result;
  for (std::uint32_t i = 0; i < count; ++i) {
    const int error = prepare(burst, first + i, i);
    if (error == 0) continue;
    // First send the packets before it.
    if (i > 0) {
      count = i;
      break;
    }
    result.failed = 1;
    result.error = error;
    return result;
  }
  while (result.sent < count) {
    const int sent = sendmmsg(fd(), &messages_[result.sent], count - result.sent, MSG_DONTWAIT);
    if (sent > 0) {
      for (int i = 0; i < sent; ++i) result.bytes += messages_[result.sent + i].msg_len;
      result.sent += static_cast<std::uint32_t>(sent);
      down_ = false;
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    const int error = sent == 0 ? EAGAIN : errno;
    // Either the socket's buffer or the queue of the network card is full. An unplugged cable has
    // the same effect.
    const bool unplugged = error == ENOBUFS && link_is_down();
    if (error == EAGAIN || (error == ENOBUFS && !unplugged)) break;
    result.error = unplugged ? ENETDOWN : error;
    // Without an interface, no packet can be sent.
    const bool none = unplugged || error == ENETDOWN || error == ENXIO || error == ENODEV;
    result.failed = none ? count - result.sent : 1;
    break;
  }
  return result;
}

}  // namespace daqiri::packet
