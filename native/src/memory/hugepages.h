/// Hugepages of the host, as `kind: huge` takes them: of the default size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "daqiri/config.h"

namespace daqiri::memory {

/// What the kernel says of pages of the default size.
struct Hugepages {
  std::size_t size{std::size_t{2} << 20U};
  std::uint64_t total{0};
  /// That a mapping can have now.
  std::uint64_t available{0};

  /// Of this host.
  static Hugepages now();
  /// As /proc/meminfo and /proc/sys/vm/nr_overcommit_hugepages say.
  static Hugepages of(std::istream& meminfo, std::istream& overcommitted);

  /// How many there must be for so many more than are in use now.
  [[nodiscard]] std::uint64_t total_for(std::uint64_t needed) const noexcept {
    return total - (available < total ? available : total) + needed;
  }
  /// How to have so many more than are in use now.
  [[nodiscard]] std::string remedy(std::uint64_t needed) const;
};

/// Pages of `page` bytes that a region takes: whole ones.
[[nodiscard]] std::uint64_t hugepages_for(const MemoryRegionConfig& region, std::size_t page);

}  // namespace daqiri::memory
