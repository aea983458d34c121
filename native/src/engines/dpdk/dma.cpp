#include "engines/dpdk/dma.h"

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_memory.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "daqiri/error.h"
#include "engines/dpdk/eal.h"
#include "system/log.h"

namespace daqiri::dpdk {

namespace {

using Extent = memory::RegionExtent;

/// Held while memory becomes known to DPDK and cards, or is forgotten.
std::mutex mapping_mutex;
/// How many mappings have the memory at an address: of DPDK, and of a card (null: of all that share
/// theirs). DPDK counts nothing: its second mapping changes nothing, and its first removal ends
/// both.
std::map<std::byte*, unsigned> registered;
std::map<std::pair<const rte_device*, std::byte*>, unsigned> mapped;

std::size_t page(DmaMapping::Memory memory) noexcept {
  return memory == DmaMapping::Memory::GPU ? memory::GPU_PAGE
                                           : static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// Cards use addresses of this process.
std::uint64_t iova(const Extent& extent) noexcept {
  return reinterpret_cast<std::uintptr_t>(extent.base);
}

void forget(std::byte* base, const Extent& extent) noexcept {
  const auto known = registered.find(base);
  if (--known->second > 0) return;
  registered.erase(known);
  rte_extmem_unregister(base, extent.bytes);
}

}  // namespace

DmaMapping::DmaMapping(rte_device& device, bool shares_mappings, const memory::RegionExtent& extent,
                       Memory memory, std::string region)
    : device_(device),
      shares_mappings_(shares_mappings),
      extent_(extent),
      region_(std::move(region)) {
  const auto fail = [&](const std::string& what, int error) {
    std::string fix = "use kind 'host' or 'huge'";
    if (memory == Memory::GPU) {
      fix =
          "a ConnectX needs the kernel module nvidia-peermem (modprobe nvidia-peermem), and the "
          "GPU a BAR1 that holds the region (nvidia-smi -q); other cards do not write to GPUs";
    } else if (error == ENOMEM || error == EPERM) {
      fix =
          "cards need locked memory: raise the limit (ulimit -l, LimitMEMLOCK of systemd) or lower "
          "num_bufs";
    }
    const std::string whose =
        memory == Memory::GPU ? std::string() : "memory region '" + region_ + "': ";
    throw Error(Status::NO_FREE_PACKET_BUFFERS,
                whose + what + ": " + Reports::reason(error) + "; " + fix);
  };
  const std::lock_guard lock(mapping_mutex);
  unsigned& known = registered[extent.base];
  if (known == 0 && rte_extmem_register(extent.base, extent.bytes, nullptr, 0, page(memory)) != 0) {
    const int error = rte_errno;
    registered.erase(extent.base);
    fail("DPDK does not take its memory", error);
  }
  ++known;
  unsigned& users = mapped[{shares_mappings ? nullptr : &device, extent.base}];
  if (users == 0 && rte_dev_dma_map(&device, extent.base, iova(extent), extent.bytes) != 0) {
    const int error = rte_errno;
    mapped.erase({shares_mappings ? nullptr : &device, extent.base});
    forget(extent.base, extent);
    fail("the card cannot have its memory", error);
  }
  ++users;
}

DmaMapping::~DmaMapping() {
  if (!owns_eal()) return;
  const std::lock_guard lock(mapping_mutex);
  const auto users = mapped.find({shares_mappings_ ? nullptr : &device_, extent_.base});
  if (--users->second == 0) {
    mapped.erase(users);
    if (rte_dev_dma_unmap(&device_, extent_.base, iova(extent_), extent_.bytes) != 0) {
      log(LogLevel::WARN,
          "memory region '" + region_ +
              "': a card does not give its memory back: " + Reports::reason(rte_errno));
    }
  }
  forget(extent_.base, extent_);
}

}  // namespace daqiri::dpdk
