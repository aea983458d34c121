#include "engines/dpdk/kernel_losses.h"

#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "net/netlink.h"
#include "system/log.h"

namespace daqiri::dpdk {

namespace {

template <typename Value>
bool ask(int socket, int level, int option, Value& value) noexcept {
  socklen_t bytes = sizeof value;
  return getsockopt(socket, level, option, &value, &bytes) == 0;
}

/// Packet sockets of this process that are bound to an interface, in the group that the driver
/// makes (VirtualDevice::claim_packet_sockets).
std::vector<int> sockets_on(unsigned interface) {
  const int group = static_cast<int>((static_cast<unsigned>(getpid()) ^ interface) & UINT16_MAX);
  std::vector<int> found;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int socket = std::stoi(each.path().filename().string());
    int domain = 0;
    int fanout = 0;
    sockaddr_ll address{};
    socklen_t bytes = sizeof address;
    if (ask(socket, SOL_SOCKET, SO_DOMAIN, domain) && domain == AF_PACKET &&
        getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
        address.sll_ifindex == static_cast<int>(interface) &&
        ask(socket, SOL_PACKET, PACKET_FANOUT, fanout) && (fanout & UINT16_MAX) == group)
      found.push_back(socket);
  }
  return found;
}

}  // namespace

void KernelLosses::begin(const std::string& port, std::string_view driver, unsigned interface) {
  if (driver == "net_af_packet") {
    link_.emplace(port, LinkStatistics::Traffic::EVERY_FRAME,
                  [=](const File&) { return static_cast<int>(interface); });
    sockets_ = sockets_on(interface);
    static_cast<void>(read());
    dropped_by_sockets_ = 0;
  } else if (driver == "net_tap") {
    try {
      netlink_ = open_netlink();
    } catch (const std::system_error& error) {
      log(LogLevel::WARN,
          "interface '" + port +
              "': what the kernel drops for its tap is not counted: " + error.what());
      return;
    }
    tap_ = interface;
    dropped_before_ = dropped_for_tap();
  }
}

PortSnapshot KernelLosses::read() noexcept {
  PortSnapshot lost;
  if (link_) lost = link_->losses(0);
  for (const int socket : sockets_) {
    // The kernel counts from zero after each call.
    tpacket_stats counts{};
    if (ask(socket, SOL_PACKET, PACKET_STATISTICS, counts)) dropped_by_sockets_ += counts.tp_drops;
  }
  std::uint64_t dropped = dropped_by_sockets_;
  // Of a tap that is gone, nothing is known.
  if (const std::uint64_t now = tap_ == 0 ? 0 : dropped_for_tap(); now > dropped_before_)
    dropped += now - dropped_before_;
  lost.lost_dropped += dropped;
  lost.lost_before_engine += dropped;
  return lost;
}

std::uint64_t KernelLosses::dropped_for_tap() const noexcept try {
  if_stats_msg wanted{};
  wanted.ifindex = tap_;
  wanted.filter_mask = IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64);
  std::uint64_t dropped = 0;
  NetlinkRequest request(RTM_GETSTATS, 0, wanted);
  request.ask<if_stats_msg>(netlink_, [&](const if_stats_msg&, const NetlinkAttributes& found) {
    // Its queues were full (txqueuelen).
    const rtattr* const counters = found.find(IFLA_STATS_LINK_64);
    rtnl_link_stats64 stats{};
    // Older kernels have fewer.
    if (counters != nullptr)
      std::memcpy(&stats, RTA_DATA(counters), std::min(RTA_PAYLOAD(counters), sizeof stats));
    dropped = stats.tx_dropped;
  });
  return dropped;
} catch (const std::exception&) {
  return 0;
}

}  // namespace daqiri::dpdk
