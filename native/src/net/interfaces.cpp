#include "net/interfaces.h"

#include <linux/if_link.h>
#include <linux/pkt_sched.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "daqiri/error.h"
#include "net/ethtool.h"
#include "net/netlink.h"

namespace daqiri {

namespace {

NetlinkAttributes nested_in(const rtattr* attribute) noexcept {
  if (attribute == nullptr) return {nullptr, 0};
  return {RTA_DATA(attribute), RTA_PAYLOAD(attribute)};
}

std::string_view text_of(const rtattr* attribute) noexcept {
  if (attribute == nullptr) return {};
  const std::string_view text(static_cast<const char*>(RTA_DATA(attribute)),
                              RTA_PAYLOAD(attribute));
  return text.substr(0, text.find('\0'));
}

}  // namespace

std::string interfaces_of_this_host() {
  std::string names;
  struct if_nameindex* all = if_nameindex();
  for (const struct if_nameindex* one = all; one != nullptr && one->if_index != 0; ++one)
    names.append(names.empty() ? "" : ", ").append(one->if_name);
  if (all != nullptr) if_freenameindex(all);
  return names.empty() ? "none" : names;
}

bool has_other_takers(const File& netlink, int interface) {
  bool found = false;
  tcmsg discipline{};
  discipline.tcm_ifindex = interface;
  NetlinkRequest disciplines(RTM_GETQDISC, NLM_F_DUMP, discipline);
  disciplines.ask<tcmsg>(netlink, [&](const tcmsg& each, const NetlinkAttributes&) {
    // That of `ingress` and `clsact`.
    found = found || (each.tcm_ifindex == interface && each.tcm_parent == TC_H_INGRESS);
  });
  NetlinkRequest request(RTM_GETLINK, NLM_F_DUMP, ifinfomsg{});
  request.ask<ifinfomsg>(netlink, [&](const ifinfomsg& each, const NetlinkAttributes& attributes) {
    if (each.ifi_index == interface) {
      found = found || attributes.value(IFLA_MASTER, 0) != 0;
      return;
    }
    // Of a veth, it is the other end.
    found = found ||
            (attributes.value(IFLA_LINK, 0) == interface &&
             attributes.find(IFLA_LINK_NETNSID) == nullptr &&
             text_of(nested_in(attributes.find(IFLA_LINKINFO)).find(IFLA_INFO_KIND)) != "veth");
  });
  return found;
}

TapState TapState::of(const std::string& interface) {
  TapState state;
  ifinfomsg wanted{};
  wanted.ifi_index = static_cast<int>(if_nametoindex(interface.c_str()));
  if (wanted.ifi_index == 0) return state;
  state.exists = true;
  NetlinkRequest request(RTM_GETLINK, 0, wanted);
  try {
    request.ask<ifinfomsg>([&](const ifinfomsg&, const NetlinkAttributes& attributes) {
      const NetlinkAttributes link = nested_in(attributes.find(IFLA_LINKINFO));
      if (text_of(link.find(IFLA_INFO_KIND)) != "tun") return;
      const NetlinkAttributes data = nested_in(link.find(IFLA_INFO_DATA));
      constexpr std::uint8_t TAP = 2;  // IFF_TAP of linux/if_tun.h
      state.is_tap = data.value(IFLA_TUN_TYPE, TAP) == TAP;
      state.multi_queue = data.value(IFLA_TUN_MULTI_QUEUE, std::uint8_t{1}) != 0;
      state.queues = data.value(IFLA_TUN_NUM_QUEUES, std::uint32_t{0}) +
                     data.value(IFLA_TUN_NUM_DISABLED_QUEUES, std::uint32_t{0});
    });
  } catch (const std::system_error& error) {
    // Gone since.
    if (error.code().value() == ENODEV) return {};
    throw file_error("cannot ask the kernel about network interface", interface,
                     error.code().value());
  }
  return state;
}

void refuse_merging(const InterfaceConfig& config, const std::string& interface) {
  // GRO of the kernel merges datagrams for these even where no program asks for it (since 5.12).
  constexpr std::string_view MERGING[] = {"rx-udp-gro-forwarding", "rx-gro-list"};
  const File question(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::string names;
  std::string off;
  for (const std::string& name : Ethtool(question.fd(), interface.c_str()).features()) {
    if (std::ranges::find(MERGING, name) == std::ranges::end(MERGING)) continue;
    names += (names.empty() ? "" : ", ") + name;
    off += " " + name + " off";
  }
  if (names.empty()) return;
  throw Error(Status::NOT_SUPPORTED, "interface '" + config.name_ + "': '" + interface +
                                         "' merges datagrams into frames of up to 64 KiB (" +
                                         names + "), which are not what arrived; run `ethtool -K " +
                                         interface + off + "`");
}

}  // namespace daqiri
