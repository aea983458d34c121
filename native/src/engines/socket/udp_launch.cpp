#include "engines/socket/udp_launch.h"

#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <linux/pkt_sched.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "engines/socket/sockets.h"
#include "net/netlink.h"
#include "net/routes.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

/// How long before its launch time a packet is given to the kernel: the usual delay of a worker
/// that is not stopped.
constexpr std::uint64_t LEAD_NS = 1'000'000;
/// A packet that is still in the kernel this long after its stamp is waiting for the wire, and
/// counts as sent.
constexpr std::uint64_t WIRE_NS = 20'000'000;
/// Reports wait in the receive buffer; space for that many, and for the packets that they contain.
constexpr int REPORT_BUFFER = 128 << 20;

/// etf in software drops packets that are late by more than its delta; every timer can be late by
/// this much.
constexpr std::uint64_t MIN_DELTA_NS = 100'000;
/// Defaults of fq if the kernel does not report them: 10 s and 100 packets.
constexpr std::uint32_t FQ_HORIZON_US = 10'000'000;
constexpr std::uint32_t FQ_FLOW_LIMIT = 100;

struct Qdisc {
  std::string kind;
  std::uint32_t handle{0};
  std::uint32_t parent{0};
  tc_etf_qopt etf{};
  std::uint32_t flow_limit{FQ_FLOW_LIMIT};
  std::uint32_t horizon_us{FQ_HORIZON_US};
};

/// The queueing disciplines for outgoing packets, the root first; `index` 0: of all interfaces.
std::vector<Qdisc> qdiscs_of(unsigned index) {
  tcmsg wanted{};
  wanted.tcm_ifindex = static_cast<int>(index);
  NetlinkRequest request(RTM_GETQDISC, NLM_F_DUMP, wanted);
  request.add(TCA_DUMP_INVISIBLE, nullptr, 0);
  std::vector<Qdisc> found;
  request.ask<tcmsg>([&](const tcmsg& message, const NetlinkAttributes& attributes) {
    // Some kernels do not filter by interface.
    if (index != 0 && message.tcm_ifindex != wanted.tcm_ifindex) return;
    if (message.tcm_parent == TC_H_INGRESS) return;
    Qdisc qdisc;
    if (const rtattr* kind = attributes.find(TCA_KIND); kind != nullptr)
      qdisc.kind = std::string(static_cast<const char*>(RTA_DATA(kind)), RTA_PAYLOAD(kind)).c_str();
    qdisc.handle = message.tcm_handle;
    qdisc.parent = message.tcm_parent;
    if (const rtattr* nested = attributes.find(TCA_OPTIONS); nested != nullptr) {
      const NetlinkAttributes options(RTA_DATA(nested), RTA_PAYLOAD(nested));
      if (qdisc.kind == "etf") {
        qdisc.etf = options.value(TCA_ETF_PARMS, qdisc.etf);
      } else if (qdisc.kind == "fq") {
        qdisc.flow_limit = options.value(TCA_FQ_FLOW_PLIMIT, qdisc.flow_limit);
        qdisc.horizon_us = options.value(TCA_FQ_HORIZON, qdisc.horizon_us);
      }
    }
    found.push_back(qdisc);
  });
  std::stable_partition(found.begin(), found.end(),
                        [](const Qdisc& qdisc) { return qdisc.parent == TC_H_ROOT; });
  return found;
}

/// The queueing disciplines in which packets wait. Only a root may have the handle 0 and children.
std::vector<Qdisc> leaves_of(const std::vector<Qdisc>& all) {
  const auto has_child = [&](const Qdisc& qdisc) {
    return std::any_of(all.begin(), all.end(), [&](const Qdisc& child) {
      return child.parent != TC_H_ROOT && (qdisc.parent == TC_H_ROOT || qdisc.handle != 0) &&
             TC_H_MAJ(child.parent) == TC_H_MAJ(qdisc.handle);
    });
  };
  std::vector<Qdisc> leaves;
  std::remove_copy_if(all.begin(), all.end(), std::back_inserter(leaves), has_child);
  return leaves;
}

/// Whether the discipline cuts a message of several packets into packets, and reports success if it
/// takes one of them (tbf_segment, taprio_enqueue_segmented, cake_enqueue).
bool splits(const Qdisc& qdisc) noexcept {
  return qdisc.kind == "tbf" || qdisc.kind == "taprio" || qdisc.kind == "cake";
}

/// Why the discipline does not keep launch times; empty: it does.
std::string refusal_of(const Qdisc& leaf) {
  if (leaf.kind == "fq") return "";
  if (leaf.kind != "etf") return "it sends immediately";
  const std::uint32_t flags = leaf.etf.flags;
  if ((flags & TC_ETF_DEADLINE_MODE_ON) != 0)
    return "in deadline mode it sends before the launch time";
  if ((flags & TC_ETF_OFFLOAD_ON) == 0 &&
      static_cast<std::uint64_t>(std::max(leaf.etf.delta, 0)) < MIN_DELTA_NS)
    return "with a delta of " + std::to_string(leaf.etf.delta) +
           " ns it drops packets for which its timer is late; at least " +
           std::to_string(MIN_DELTA_NS) + " are needed";
  return "";
}

[[noreturn]] void no_launch_times(const InterfaceConfig& interface, const std::string& why) {
  throw interface_error(interface.name_, Status::NOT_SUPPORTED,
                        "tx.accurate_send is true, and " + why);
}

LaunchQdisc judge(const std::string& interface, const std::vector<Qdisc>& all) {
  LaunchQdisc result;
  result.interface = interface;
  result.splits = std::ranges::any_of(all, splits);
  const std::vector<Qdisc> leaves = leaves_of(all);
  if (leaves.empty()) {
    result.found = "none";
    result.refusal = "it sends immediately";
    return result;
  }
  const Qdisc& first = leaves.front();
  result.etf = first.kind == "etf";
  result.clock = result.etf ? first.etf.clockid : CLOCK_MONOTONIC;
  result.delta = static_cast<std::uint64_t>(std::max(first.etf.delta, 0));
  result.offload = (first.etf.flags & TC_ETF_OFFLOAD_ON) != 0;
  result.flow_limit = first.flow_limit;
  std::uint32_t horizon_us = first.horizon_us;
  std::set<std::string> kinds;
  for (const Qdisc& leaf : leaves) {
    if (kinds.insert(leaf.kind).second)
      result.found.append(result.found.empty() ? "" : " and ").append(leaf.kind);
    result.drops_untimed = result.drops_untimed || leaf.kind == "etf";
    if (result.refusal.empty()) result.refusal = refusal_of(leaf);
    if (result.refusal.empty() &&
        (leaf.kind != first.kind || leaf.etf.delta != first.etf.delta ||
         leaf.etf.clockid != first.etf.clockid || leaf.etf.flags != first.etf.flags))
      result.refusal = "its children differ";
    result.flow_limit = std::min(result.flow_limit, leaf.flow_limit);
    horizon_us = std::min(horizon_us, leaf.horizon_us);
  }
  if (all.size() > 1) result.found.insert(0, all.front().kind + " with ");
  result.horizon = std::uint64_t{horizon_us} * 1000U;
  return result;
}

}  // namespace

LaunchQdisc find_launch_qdisc(const SocketAddress& local, const SocketAddress& peer,
                              unsigned egress) noexcept {
  LaunchQdisc result;
  try {
    const unsigned index = route_interface(open_netlink(), local, peer, egress);
    std::array<char, IF_NAMESIZE> name{};
    if (index == 0 || if_indextoname(index, name.data()) == nullptr)
      throw std::system_error(ENODEV, std::generic_category(), "no route to " + peer.text());
    result.interface = name.data();
    return judge(name.data(), qdiscs_of(index));
  } catch (const std::exception& error) {
    result.found = "unknown";
    result.refusal = error.what();
  }
  return result;
}

bool any_qdisc_splits() noexcept {
  try {
    return std::ranges::any_of(qdiscs_of(0), splits);
  } catch (const std::exception&) {
    return false;
  }
}

void require_launch_times(const LaunchQdisc& qdisc, const SocketAddress& peer,
                          const InterfaceConfig& interface) {
  if (qdisc.keeps()) return;
  const std::string device = qdisc.interface.empty() ? "INTERFACE" : qdisc.interface;
  no_launch_times(interface, "network interface '" + device + "' to udp://" + peer.text() +
                                 " has the queueing discipline '" + qdisc.found +
                                 "', which does not keep launch times (" + qdisc.refusal +
                                 "); fq and etf do. Set one: `tc qdisc replace dev " + device +
                                 " root fq`, or `tc qdisc replace dev " + device +
                                 " root etf clockid CLOCK_TAI delta 500000`. Or set accurate_send "
                                 "to false: launch times in software");
}

UdpLaunch::UdpLaunch(const UdpSocket& socket, LaunchQdisc qdisc, const InterfaceConfig& interface)
    : socket_(socket),
      qdisc_(std::move(qdisc)),
      shift_(qdisc_.etf && !qdisc_.offload ? qdisc_.delta : 0),
      reach_(qdisc_.horizon / 2) {
  require_launch_times(qdisc_, socket.remote(), interface);
  const sock_txtime option{qdisc_.clock, SOF_TXTIME_REPORT_ERRORS};
  if (setsockopt(socket.fd(), SOL_SOCKET, SO_TXTIME, &option, sizeof(option)) != 0) {
    const int error = errno;
    no_launch_times(interface,
                    "the kernel rejects launch times for '" + kept_by() +
                        "': " + std::generic_category().message(error) +
                        (error == EPERM ? "; for etf grant CAP_NET_ADMIN, or use fq" : ""));
  }
  enlarge_buffer(socket.fd(), SO_SNDBUF, LAUNCH_SEND_BUFFER);
  if (qdisc_.etf) enlarge_buffer(socket.fd(), SO_RCVBUF, REPORT_BUFFER);
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
  // Otherwise `completed` frees places.
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
  // Find the first message with that stamp; stamps do not decrease.
  std::uint64_t found = handed_ > CAPACITY ? handed_ - CAPACITY : 0;
  for (std::uint64_t end = handed_; found < end;) {
    const std::uint64_t middle = found + (end - found) / 2;
    if (at(middle).stamp < stamp) {
      found = middle + 1;
    } else {
      end = middle;
    }
  }
  if (found == handed_) return;
  Message& message = at(found);
  // Each fragment of a datagram is reported with the same stamp.
  if (message.stamp != stamp || message.packets == 0) return;
  fresh_.missed += message.packets;
  if (found < decided_) {
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
      // Late in the queue (TXTIME_MISSED), or before it was queued (TXTIME_INVALID_PARAM).
      drop((std::uint64_t{report.ee_data} << 32U) | report.ee_info);
    }
  }
}

TransmitCompletion UdpLaunch::completed(bool last) noexcept {
  // In this order: if a packet has left the kernel and was dropped, the report exists already.
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
