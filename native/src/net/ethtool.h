/// Queries the driver of a network interface (SIOCETHTOOL of linux/ethtool.h).
#pragma once

#include <net/if.h>

#include <cstdint>
#include <string>
#include <vector>

namespace daqiri {

/// Asks about one interface. Empty answers: the driver does not tell.
class Ethtool {
 public:
  /// `socket`: any socket in the network namespace of the interface.
  Ethtool(int socket, const char* interface) noexcept;

  /// Number of strings in a set (ETH_SS_STATS, ETH_SS_FEATURES).
  [[nodiscard]] std::uint32_t count(std::uint32_t set);
  /// The strings of a set of `count`.
  [[nodiscard]] std::vector<std::string> names(std::uint32_t set, std::uint32_t count);
  /// The driver's counters, in the order of the names of ETH_SS_STATS.
  [[nodiscard]] std::vector<std::uint64_t> statistics(std::uint32_t count);
  /// Which packets the card stamps with times.
  struct Timestamping {
    /// SOF_TIMESTAMPING_ of linux/net_tstamp.h.
    std::uint32_t kinds{0};
    /// Bits 1 << HWTSTAMP_FILTER_...
    std::uint32_t receive_filters{0};
    /// N of /dev/ptpN; -1: none.
    int clock{-1};
  };
  [[nodiscard]] Timestamping timestamping() noexcept;
  /// Names of the features that are on ("rx-gro").
  [[nodiscard]] std::vector<std::string> features();

 private:
  bool ask(void* data) noexcept;

  int socket_;
  ifreq request_{};
};

}  // namespace daqiri
