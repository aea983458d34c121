/// Receive times of a network card (SIOCSHWTSTAMP of linux/net_tstamp.h).
#pragma once

#include <linux/net_tstamp.h>
#include <unistd.h>

#include <cstdint>
#include <optional>

#include "daqiri/config.h"
#include "engines/packet/interface.h"
#include "system/file.h"

namespace daqiri::packet {

/// Whether the card stamps every received frame now.
bool card_stamps(const NetworkInterface& interface) noexcept;

/// The card stamps all received frames while this exists. Times are those of the card's clock,
/// less the whole seconds by which it is ahead of CLOCK_REALTIME: PTP sets it to TAI.
class CardTimestamps {
 public:
  /// Throws Error: NOT_SUPPORTED if the card has no timestamps of all frames, or no clock that this
  /// process can read, or a driver that does not tell its setting; NOT_READY if the clock is not
  /// that of the system, apart from whole seconds.
  static void require(const InterfaceConfig& config, const NetworkInterface& interface);

  /// Also throws Error if they cannot be switched on.
  CardTimestamps(const InterfaceConfig& config, const NetworkInterface& interface);
  CardTimestamps(const CardTimestamps&) = delete;
  CardTimestamps& operator=(const CardTimestamps&) = delete;
  /// Switches off what was switched on, unless another program has changed it.
  ~CardTimestamps();

  /// CLOCK_REALTIME, ns, of a time of the card.
  [[nodiscard]] std::uint64_t realtime(std::uint64_t card_ns) const noexcept {
    return card_ns - static_cast<std::uint64_t>(ahead_ns_);
  }

 private:
  NetworkInterface interface_;
  /// A child made by fork(2) leaves the setting alone.
  pid_t process_{getpid()};
  std::int64_t ahead_ns_;
  /// For ioctl(2).
  File socket_;
  /// The filter before; none: it was not changed.
  std::optional<int> filter_before_;
};

/// The part of a difference of two clocks that is whole seconds, ns.
std::int64_t whole_seconds(std::int64_t difference_ns) noexcept;

}  // namespace daqiri::packet
