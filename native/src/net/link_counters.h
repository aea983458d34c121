/// The kernel's counters of received frames of network interfaces.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "system/file.h"

namespace daqiri {

/// Frames that an interface lost, as it counts them since it was made.
struct LinkCounters {
  /// No space in the card's ring or memory.
  std::uint64_t card{0};
  /// The same, as counted by its driver (ethtool -S) under names that are known; may include or
  /// miss those in `card`. None: the driver has no such counters, or could not be asked.
  std::optional<std::uint64_t> driver{};
  /// Bad frames of any kind, and those of the kinds that are certainly no overflow.
  std::uint64_t errors{0};
  std::uint64_t damaged{0};
  /// rx_dropped: dropped by the kernel or the driver, and unwanted ones.
  std::uint64_t dropped{0};
  /// tx_dropped; of a tap, what found no place in the queues of its program.
  std::uint64_t unsent{0};

  /// From rtnl_link_stats64, which may be shorter on older kernels.
  static LinkCounters of(const void* stats, std::size_t bytes) noexcept;
};

/// Sum of the counters of a driver that count frames without space in the card's ring or memory.
/// Drivers count them for the card, for each queue, or both: the larger sum counts.
std::uint64_t card_losses(const std::vector<std::string>& names,
                          const std::vector<std::uint64_t>& values) noexcept;
/// Whether the driver has any of these counters.
bool has_card_losses(const std::vector<std::string>& names) noexcept;

/// Reads them in the network namespace in which it was made. One thread at a time.
class LinkReader {
 public:
  /// Throws std::system_error.
  LinkReader();

  /// See `open_netlink`.
  [[nodiscard]] const File& netlink() const noexcept { return netlink_; }
  /// The counters of the interface `index`, without those of its driver. 0: of all interfaces of
  /// the host. Empty: there is none. Throws std::system_error.
  std::map<int, LinkCounters> read(int index);
  /// Fill in LinkCounters::driver. After the driver's counters were changed, as with the number of
  /// queues, it is unknown once.
  void read_driver(int index, LinkCounters& counters);
  /// Frames that were dropped since the first call (which returns 0), because a core's backlog was
  /// full, on any interface of the host.
  std::uint64_t backlog_drops();

 private:
  /// Names of an interface's driver counters; none are known: empty.
  struct Driver {
    std::uint32_t counters{0};
    std::vector<std::string> names;
  };

  File netlink_;
  /// For ioctl(2).
  File socket_;
  /// /proc/net/softnet_stat; not open: /proc is not mounted.
  File softnet_;
  std::map<int, Driver> drivers_;
  /// Per line of softnet_stat, modulo 2^32.
  std::vector<std::uint32_t> softnet_before_;
  std::uint64_t backlog_drops_{0};
};

}  // namespace daqiri
