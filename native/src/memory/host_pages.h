/// Pages of the host.
#pragma once

#include <cstddef>
#include <utility>

#include "memory/region.h"

namespace daqiri::memory {

/// Maps ordinary memory. A mapping of at least a transparent hugepage begins at the boundary of
/// one, so that none is allocated or freed in parts. MAP_FAILED: the reason is in errno.
void* map_pages(std::size_t bytes) noexcept;

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
