/// Memory of packets that network cards read and write by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "memory/region.h"

struct rte_device;

namespace daqiri::dpdk {

/// The memory of a region, known to a card as long as this object exists. Several cards, and
/// several ports of one, may have the same region.
class DmaMapping {
 public:
  enum class Memory : std::uint8_t { HOST, GPU };

  /// `shares_mappings`: the card has the mappings of all such cards of this process, as those of
  /// VFIO have. `region`: its name. Throws Error, for a GPU without that name.
  DmaMapping(rte_device& device, bool shares_mappings, const memory::RegionExtent& extent,
             Memory memory, std::string region);
  DmaMapping(const DmaMapping&) = delete;
  DmaMapping& operator=(const DmaMapping&) = delete;
  /// The card does not use it any longer.
  ~DmaMapping();

 private:
  rte_device& device_;
  bool shares_mappings_;
  memory::RegionExtent extent_;
  std::string region_;
};

}  // namespace daqiri::dpdk
