/// What must outlive every burst of a session.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "burst/burst.h"
#include "memory/region.h"
#include "net/link_layer.h"

namespace daqiri {

class Session;

/// Of one queue.
inline constexpr std::size_t MOST_BURSTS_IN_RING = 2048;

/// Regions and pools. A burst in the application's hands shares ownership, so that its packets stay
/// readable after the session is closed.
struct SessionMemory {
  /// Whose bursts these are.
  std::weak_ptr<Session> session;
  std::map<std::string, std::unique_ptr<memory::MemoryRegion>> regions;
  [[nodiscard]] std::vector<memory::MemoryRegion*> regions_named(
      const std::vector<std::string>& names) const {
    std::vector<memory::MemoryRegion*> found;
    for (const std::string& name : names) found.push_back(regions.at(name).get());
    return found;
  }
  /// Memory of engines, from which they deliver.
  std::vector<std::shared_ptr<memory::BufferOwner>> owners;
  std::vector<std::unique_ptr<BurstPool>> rx_pools;
  std::unique_ptr<BurstPool> tx_pool;
  /// By port.
  std::vector<std::shared_ptr<const LinkLayer>> link_layers;
  /// By port; zeros where it has none.
  std::vector<std::array<std::uint8_t, 6>> mac_addresses;
};

}  // namespace daqiri
