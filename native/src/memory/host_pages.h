/// Pages of the host for a memory region.
#pragma once

#include <utility>

#include "memory/region.h"

namespace daqiri::memory {

/// An allocation on the region's NUMA node, with all pages present. The destructor unmaps it.
class HostPages {
 public:
  /// Ordinary pages, or hugepages for `kind: huge`. Throws like MemoryRegion::allocate.
  HostPages(const MemoryRegionConfig& config, const RegionNeeds& needs);
  HostPages(HostPages&& other) noexcept : extent_(std::exchange(other.extent_, {})) {}
  HostPages& operator=(HostPages&&) = delete;
  ~HostPages();

  [[nodiscard]] const RegionExtent& extent() const noexcept { return extent_; }

 private:
  RegionExtent extent_;
};

}  // namespace daqiri::memory
