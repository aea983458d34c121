#include "engines/socket/udp_launch.h"

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

#include "daqiri/error.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

/// How long before its launch time a packet is given to the kernel: what a worker is late by
/// without being stopped.
constexpr std::uint64_t LEAD_NS = 1'000'000;
/// A packet that is still in the kernel this long after its stamp waits for the wire, and has left.
constexpr std::uint64_t WIRE_NS = 20'000'000;
/// Reports wait in the receive buffer; room for that many, and for the packets they come with.
constexpr int REPORT_BUFFER = 128 << 20;
/// Packets that wait in the kernel for their time are accounted to the socket.
constexpr int SEND_BUFFER = 32 << 20;

void enlarge(int fd, int forced, int plain, int read, int bytes) noexcept {
  int now = 0;
  socklen_t length = sizeof(now);
  if (getsockopt(fd, SOL_SOCKET, read, &now, &length) == 0 && now / 2 >= bytes) return;
  if (setsockopt(fd, SOL_SOCKET, forced, &bytes, sizeof(bytes)) != 0)
    setsockopt(fd, SOL_SOCKET, plain, &bytes, sizeof(bytes));
}

}  // namespace

UdpLaunch::UdpLaunch(const UdpSocket& socket, LaunchQdisc qdisc, const InterfaceConfig& interface)
    : socket_(socket),
      qdisc_(std::move(qdisc)),
      shift_(qdisc_.etf && !qdisc_.offload ? qdisc_.delta : 0),
      reach_(qdisc_.horizon / 2) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Status::NOT_SUPPORTED,
                "interface '" + interface.name_ + "': tx.accurate_send is true, and " + why);
  };
  if (!qdisc_.keeps()) {
    const std::string device = qdisc_.interface.empty() ? "INTERFACE" : qdisc_.interface;
    refuse("network interface '" + device + "' to udp://" + socket.remote().text() +
           " has the queueing discipline '" + qdisc_.found + "', which keeps no launch times (" +
           qdisc_.refusal + "); fq and etf do. Set one: `tc qdisc replace dev " + device +
           " root fq`, or `tc qdisc replace dev " + device +
           " root etf clockid CLOCK_TAI delta 500000`. Or set accurate_send to false: launch times "
           "in software");
  }
  const auto& queues = interface.tx_.queues_;
  if (queues.size() > 1) {
    refuse(
        "it has " + std::to_string(queues.size()) +
        " transmit queues on one socket, whose packets the kernel sorts together; use one queue");
  }
  if (queues.front().pacing_mbps_ != 0) {
    refuse("queue '" + queues.front().name_ + "' has pacing_mbps " +
           std::to_string(queues.front().pacing_mbps_) +
           ", which the worker keeps and the kernel would undo; set it to 0");
  }
  const sock_txtime option{qdisc_.clock, SOF_TXTIME_REPORT_ERRORS};
  if (setsockopt(socket.fd(), SOL_SOCKET, SO_TXTIME, &option, sizeof(option)) != 0) {
    const int error = errno;
    refuse("the kernel refuses launch times for '" + kept_by() +
           "': " + std::generic_category().message(error) +
           (error == EPERM ? "; for etf grant CAP_NET_ADMIN, or use fq" : ""));
  }
  enlarge(socket.fd(), SO_SNDBUFFORCE, SO_SNDBUF, SO_SNDBUF, SEND_BUFFER);
  if (qdisc_.etf) enlarge(socket.fd(), SO_RCVBUFFORCE, SO_RCVBUF, SO_RCVBUF, REPORT_BUFFER);
}

std::uint64_t UdpLaunch::lead() const noexcept {
  if (!qdisc_.etf) return std::clamp<std::uint64_t>(reach_, 1, LEAD_NS);
  return qdisc_.offload ? qdisc_.delta + LEAD_NS : LEAD_NS;
}

void UdpLaunch::begin() noexcept {
  now_ = clock_ns(qdisc_.clock);
  port_now_ = now_ - static_cast<std::uint64_t>(ahead_of_realtime(qdisc_.clock));
  stamped_ = std::min(handed_stamp_, now_ + reach_ + shift_ + qdisc_.delta + CAPACITY);
}

std::uint64_t UdpLaunch::on_qdisc_clock(std::uint64_t launch) const noexcept {
  return launch <= port_now_ ? now_ : now_ + std::min(launch - port_now_, reach_);
}

std::uint32_t UdpLaunch::room() noexcept {
  while (future_ < handed_ && at(future_).stamp <= now_) ++future_;
  const std::uint64_t free = CAPACITY - (handed_ - decided_);
  if (qdisc_.etf) return static_cast<std::uint32_t>(free);
  const std::uint64_t held = handed_ - future_;
  return static_cast<std::uint32_t>(
      std::min(free, qdisc_.flow_limit > held ? qdisc_.flow_limit - held : 0));
}

std::uint64_t UdpLaunch::until_room() const noexcept {
  const bool held_by_flow = !qdisc_.etf && handed_ - decided_ < CAPACITY && future_ < handed_;
  // Else it is made by `completed`.
  return held_by_flow ? messages_[future_ % CAPACITY].stamp - now_ : LEAD_NS;
}

std::uint64_t UdpLaunch::stamp(std::uint64_t launch) noexcept {
  const std::uint64_t wanted = std::max(on_qdisc_clock(launch) + shift_, now_ + qdisc_.delta);
  stamped_ = std::max(wanted, stamped_ + (qdisc_.etf ? 1U : 0U));
  return stamped_;
}

void UdpLaunch::handed(std::uint64_t stamp, std::uint32_t packets, std::uint32_t bytes) noexcept {
  handed_stamp_ = stamp;
  at(handed_) = {stamp, packets, bytes};
  ++handed_;
}

void UdpLaunch::drop(std::uint64_t stamp) noexcept {
  std::uint64_t first = handed_ > CAPACITY ? handed_ - CAPACITY : 0;
  std::uint64_t last = handed_;
  while (first < last) {
    const std::uint64_t middle = first + (last - first) / 2;
    if (at(middle).stamp < stamp) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  if (first == handed_ || at(first).stamp != stamp) return;
  Message& message = at(first);
  // Each fragment of a datagram is reported, and each has its stamp.
  if (message.packets == 0) return;
  fresh_.missed += message.packets;
  if (first < decided_) {
    fresh_.recalled += message.packets;
    fresh_.recalled_bytes += message.bytes;
  }
  message.packets = 0;
}

void UdpLaunch::read_reports() noexcept {
  alignas(cmsghdr) std::array<std::byte, 512> control;
  for (std::uint64_t i = 0; i < 2 * CAPACITY; ++i) {
    msghdr header{};
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    if (recvmsg(socket_.fd(), &header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      const bool error = (c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) ||
                         (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR);
      if (!error) continue;
      sock_extended_err report{};
      std::memcpy(&report, CMSG_DATA(c), sizeof(report));
      if (report.ee_origin != SO_EE_ORIGIN_TXTIME) continue;
      // Late in the queue (TXTIME_MISSED), or before it was there (TXTIME_INVALID_PARAM).
      drop((std::uint64_t{report.ee_data} << 32U) | report.ee_info);
    }
  }
}

TransmitCompletion UdpLaunch::completed(bool last) noexcept {
  // In this order: what is out of the kernel has been reported, if it was dropped.
  int queued = 0;
  const bool empty = ioctl(socket_.fd(), SIOCOUTQ, &queued) == 0 && queued == 0;
  if (qdisc_.etf) read_reports();
  const std::uint64_t now = clock_ns(qdisc_.clock);
  while (decided_ < handed_) {
    const Message& message = at(decided_);
    if (!last && !empty && message.stamp + WIRE_NS > now) break;
    fresh_.sent += message.packets;
    if (message.packets > 0) fresh_.bytes += message.bytes;
    ++decided_;
  }
  future_ = std::max(future_, decided_);
  TransmitCompletion result = std::exchange(fresh_, {});
  result.more = decided_ < handed_;
  return result;
}

}  // namespace daqiri::sockets
