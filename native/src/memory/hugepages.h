/// Hugepages of the host, of the default size, for `kind: huge`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "daqiri/config.h"

namespace daqiri::memory {

/// The kernel's counts of hugepages of the default size.
struct Hugepages {
  std::size_t size{std::size_t{2} << 20U};
  std::uint64_t total{0};
  /// Number of pages that a mapping can get now.
  std::uint64_t available{0};

  /// The counts of this host.
  static Hugepages now();
  /// The counts from /proc/meminfo and /proc/sys/vm/nr_overcommit_hugepages.
  static Hugepages of(std::istream& meminfo, std::istream& overcommitted);

  /// Total number of pages required for `needed` more pages than are in use now.
  [[nodiscard]] std::uint64_t total_for(std::uint64_t needed) const noexcept {
    return total - (available < total ? available : total) + needed;
  }
  /// The command that reserves `needed` more pages than are in use now.
  [[nodiscard]] std::string remedy(std::uint64_t needed) const;
};

/// Number of whole pages of `page` bytes that a region needs.
[[nodiscard]] std::uint64_t hugepages_for(const MemoryRegionConfig& region, std::size_t page);

}  // namespace daqiri::memory
