#include "net/link_counters.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "net/ethtool.h"
#include "net/netlink.h"

namespace daqiri {

namespace {

/// Names under which drivers count frames of the whole card, each frame once: Intel (igb, igc,
/// ixgbe, i40e, ice), NVIDIA (mlx4, mlx5), Broadcom (tg3, bnx2x, bnxt), Amazon, AMD, Aquantia,
/// Cisco. Not rx_no_buffer_count of Intel, which counts frames that found no buffer and waited in
/// the card.
constexpr std::string_view OF_CARD[] = {
    "rx_missed_errors",      "rx_fifo_errors", "rx_no_dma_resources",
    "port.rx_dropped",       "rx_dropped.nic", "rx_out_of_buffer",
    "rx_discards_phy",       "rx_discards",    "rx_total_ring_discards",
    "rx_total_discard_pkts", "rx_overruns",    "port_rx_nodesc_drops",
    "no_buff_discards",      "InDroppedDma",   "rx_no_bufs"};

/// "rx_queue_3_drops", "rx3_drops", "rx-3.drops", "queue_3_rx_drops".
bool of_queue(std::string_view name) noexcept {
  std::string form;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) {
      form += c;
    } else if (!form.ends_with('N')) {
      form += 'N';
    }
  }
  return form == "rx_queue_N_drops" || form == "rxN_drops" || form == "rx_N_drops" ||
         form == "rx-N.drops" || form == "queue_N_rx_drops";
}

/// veth and virtio_net count in the drops of a queue what an XDP program passed to a socket that
/// was full (the socket counts it, too), and frames for which there was no memory.
bool drops_of_xdp(const std::vector<std::string>& names) noexcept {
  return std::ranges::any_of(names, [](std::string_view name) {
    return name.starts_with("rx") && (name.ends_with("_xdp_redirect") ||  // veth
                                      name.ends_with("_xdp_redirects"));
  });
}

}  // namespace

LinkCounters LinkCounters::of(const void* stats, std::size_t bytes) noexcept {
  rtnl_link_stats64 s{};
  std::memcpy(&s, stats, std::min(bytes, sizeof s));
  LinkCounters counters;
  // Drivers have used fifo and over for the same event.
  counters.card = s.rx_missed_errors + std::max(s.rx_fifo_errors, s.rx_over_errors);
  counters.errors = s.rx_errors;
  counters.damaged = s.rx_length_errors + s.rx_crc_errors + s.rx_frame_errors;
  counters.dropped = s.rx_dropped;
  counters.unsent = s.tx_dropped;
  return counters;
}

bool has_card_losses(const std::vector<std::string>& names) noexcept {
  const bool by_queue = !drops_of_xdp(names);
  return std::ranges::any_of(names, [&](const std::string& name) {
    return std::ranges::find(OF_CARD, name) != std::ranges::end(OF_CARD) ||
           (by_queue && of_queue(name));
  });
}

std::uint64_t card_losses(const std::vector<std::string>& names,
                          const std::vector<std::uint64_t>& values) noexcept {
  const bool by_queue = !drops_of_xdp(names);
  std::uint64_t card = 0;
  std::uint64_t queues = 0;
  for (std::size_t i = 0; i < std::min(names.size(), values.size()); ++i) {
    if (std::ranges::find(OF_CARD, names[i]) != std::ranges::end(OF_CARD)) {
      card += values[i];
    } else if (by_queue && of_queue(names[i])) {
      queues += values[i];
    }
  }
  return std::max(card, queues);
}

LinkReader::LinkReader()
    : netlink_(open_netlink()),
      socket_(
          File::private_to_process([] { return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); })),
      softnet_(File::private_to_process(
          [] { return open("/proc/net/softnet_stat", O_RDONLY | O_CLOEXEC); })) {
  if (!socket_.is_open()) throw netlink_error(errno);
}

std::map<int, LinkCounters> LinkReader::read(int index) {
  if_stats_msg wanted{};
  wanted.ifindex = static_cast<std::uint32_t>(index);
  wanted.filter_mask = IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64);
  NetlinkRequest request(RTM_GETSTATS, index == 0 ? NLM_F_DUMP : 0, wanted);
  std::map<int, LinkCounters> found;
  const auto take = [&](const if_stats_msg& message, const NetlinkAttributes& attributes) {
    const rtattr* stats = attributes.find(IFLA_STATS_LINK_64);
    if (stats != nullptr)
      found[static_cast<int>(message.ifindex)] =
          LinkCounters::of(RTA_DATA(stats), RTA_PAYLOAD(stats));
  };
  try {
    request.ask<if_stats_msg>(netlink_, take);
  } catch (const std::system_error& error) {
    // The interface was removed.
    if (error.code().value() != ENODEV) throw;
  }
  return found;
}

void LinkReader::read_driver(int index, LinkCounters& counters) {
  ifreq request{};
  request.ifr_ifindex = index;
  if (ioctl(socket_.fd(), SIOCGIFNAME, &request) != 0) return;
  Ethtool ethtool(socket_.fd(), request.ifr_name);
  const std::uint32_t count = ethtool.count(ETH_SS_STATS);
  const auto [known, first] = drivers_.try_emplace(index);
  Driver& driver = known->second;
  if (first || driver.counters != count) {
    driver = {count, ethtool.names(ETH_SS_STATS, count)};
    if (!has_card_losses(driver.names)) driver.names.clear();
    if (!first) return;
  }
  if (driver.names.empty()) return;
  const std::vector<std::uint64_t> values = ethtool.statistics(count);
  if (values.size() == driver.names.size()) counters.driver = card_losses(driver.names, values);
}

std::uint64_t LinkReader::backlog_drops() {
  // One line for each core that is online, each number in hexadecimal; the second one is "dropped".
  std::string text(65536, '\0');
  const ssize_t n = pread(softnet_.fd(), text.data(), text.size(), 0);
  std::vector<std::uint32_t> now;
  for (std::string_view rest(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
       !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t at = line.find(' ');
    if (at == std::string_view::npos) continue;
    const char* second = line.data() + at + 1;
    std::from_chars(second, line.data() + line.size(), now.emplace_back(0), 16);
  }
  // A core went offline or online: which line is whose is unknown.
  for (std::size_t i = 0; now.size() == softnet_before_.size() && i < now.size(); ++i)
    backlog_drops_ += static_cast<std::uint32_t>(now[i] - softnet_before_[i]);
  if (!now.empty()) softnet_before_ = std::move(now);
  return backlog_drops_;
}

}  // namespace daqiri
