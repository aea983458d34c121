#include "engines/socket/launch_qdisc.h"

#include <arpa/inet.h>
#include <linux/pkt_sched.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "net/netlink.h"

namespace daqiri::sockets {

namespace {

/// etf in software drops what is late by more than its delta; less than this is what any timer is
/// late by.
constexpr std::uint64_t MIN_DELTA_NS = 100'000;
/// Defaults of fq where the kernel does not tell: 10 s and 100 packets.
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

unsigned egress_of(const SocketAddress& local, const SocketAddress& peer, unsigned egress) {
  const bool bound = local.given() && !local.wildcard();
  const auto bits = static_cast<std::uint8_t>(peer.ipv6() ? 128 : 32);
  rtmsg route{};
  route.rtm_family = static_cast<std::uint8_t>(peer.family());
  route.rtm_dst_len = bits;
  route.rtm_src_len = bound ? bits : std::uint8_t{0};
  NetlinkRequest request(RTM_GETROUTE, 0, route);
  const auto add = [&](std::uint16_t attribute, const SocketAddress& address) {
    const std::uint32_t ipv4 = htonl(address.ipv4());
    if (address.ipv6()) return request.add(attribute, &address.ipv6_bytes(), sizeof(in6_addr));
    request.add(attribute, &ipv4, sizeof(ipv4));
  };
  add(RTA_DST, peer);
  if (bound) add(RTA_SRC, local);
  if (egress == 0) egress = peer.scope();
  if (egress != 0) request.add(RTA_OIF, &egress, sizeof(egress));
  unsigned index = 0;
  request.ask<rtmsg>([&](const rtmsg&, const NetlinkAttributes& attributes) {
    index = attributes.value(RTA_OIF, index);
  });
  return index;
}

/// Those that packets leave by, the root first.
std::vector<Qdisc> qdiscs_of(unsigned index) {
  tcmsg wanted{};
  wanted.tcm_ifindex = static_cast<int>(index);
  NetlinkRequest request(RTM_GETQDISC, NLM_F_DUMP, wanted);
  request.add(TCA_DUMP_INVISIBLE, nullptr, 0);
  std::vector<Qdisc> found;
  request.ask<tcmsg>([&](const tcmsg& message, const NetlinkAttributes& attributes) {
    // Kernels differ in whether they select the interface.
    if (message.tcm_ifindex != wanted.tcm_ifindex || message.tcm_parent == TC_H_INGRESS) return;
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

/// Those in which packets wait. Only a root may have the handle 0 and children.
std::vector<Qdisc> leaves_of(const std::vector<Qdisc>& all) {
  std::vector<Qdisc> leaves;
  for (const Qdisc& qdisc : all) {
    const bool root = qdisc.parent == TC_H_ROOT;
    const bool parent = std::any_of(all.begin(), all.end(), [&](const Qdisc& child) {
      return child.parent != TC_H_ROOT && (root || qdisc.handle != 0) &&
             TC_H_MAJ(child.parent) == TC_H_MAJ(qdisc.handle);
    });
    if (!parent) leaves.push_back(qdisc);
  }
  return leaves;
}

/// Empty: packets keep their launch times in it.
std::string refusal_of(const Qdisc& leaf) {
  if (leaf.kind == "fq") return "";
  if (leaf.kind != "etf") return "it sends at once";
  const std::uint32_t flags = leaf.etf.flags;
  if ((flags & TC_ETF_DEADLINE_MODE_ON) != 0)
    return "in deadline mode it sends before the launch time";
  if ((flags & TC_ETF_OFFLOAD_ON) == 0 &&
      static_cast<std::uint64_t>(std::max(leaf.etf.delta, 0)) < MIN_DELTA_NS)
    return "with a delta of " + std::to_string(leaf.etf.delta) +
           " ns it drops what its timer is late for; at least " + std::to_string(MIN_DELTA_NS) +
           " are needed";
  return "";
}

LaunchQdisc judge(const std::string& interface, const std::vector<Qdisc>& all) {
  LaunchQdisc result;
  result.interface = interface;
  const std::vector<Qdisc> leaves = leaves_of(all);
  if (leaves.empty()) {
    result.found = "none";
    result.refusal = "it sends at once";
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
    const unsigned index = egress_of(local, peer, egress);
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

}  // namespace daqiri::sockets
