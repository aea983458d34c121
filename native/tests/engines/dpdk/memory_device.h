/// A device of DPDK that splits packets into memory regions, as cards do.
#pragma once

#include <cstddef>

#include "engines/dpdk/other_process.h"

namespace daqiri::test {

/// What a device offers; that of mlx5, unless changed.
struct Offer {
  unsigned pieces{4};
  bool several_pools{true};
  bool offsets{true};
  unsigned align_log2{0};
};

/// As cuMemcpyHtoDAsync.
using CopyToGpu = int(unsigned long long to, const void* from, std::size_t bytes, void* stream);

/// The device, whose packets the library has.
struct MemoryDevice {
  explicit MemoryDevice(const Offer& can = {}) {
    library.find<void(unsigned, bool, bool, unsigned)>("offer")(can.pieces, can.several_pools,
                                                                can.offsets, can.align_log2);
  }

  InsteadOfDpdk library{"packet_memory"};
  unsigned (*missed)() = library.find<unsigned()>("missed_packets");
  void (*mbufs_sent)(unsigned*, unsigned*) = library.find<void(unsigned*, unsigned*)>("mbufs_sent");
  const void* (*latest)(unsigned) = library.find<const void*(unsigned)>("latest_piece");
  void (*be_card)(CopyToGpu*, int) = library.find<void(CopyToGpu*, int)>("be_card");
  unsigned (*mappings_of_gpus)() = library.find<unsigned()>("mappings_of_gpus");
  std::size_t (*latest_pages)() = library.find<std::size_t()>("latest_pages");
};

}  // namespace daqiri::test
