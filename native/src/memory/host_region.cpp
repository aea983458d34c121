/// Host memory: ordinary pages and hugepages, placed on a NUMA node.
#include <linux/mempolicy.h>
#include <linux/mman.h>  // MADV_POPULATE_WRITE, which glibc lacked before 2.35
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "daqiri/error.h"
#include "memory/host_pages.h"
#include "memory/hugepages.h"
#include "system/log.h"

namespace daqiri::memory {

namespace {

/// Bytes that the kernel allocates or frees per call. During the call, other threads of the process
/// cannot map memory, and so cannot start either.
constexpr std::size_t AT_ONCE = std::size_t{2} << 20U;

constexpr int MAX_NODES = 1024;

/// Binds untouched pages of the mapping to NUMA node `node`. Throws Error INVALID_PARAMETER. A
/// kernel without NUMA has one node, 0.
void place(const RegionExtent& extent, int node, const std::string& what) {
  constexpr int BITS = CHAR_BIT * sizeof(unsigned long);
  std::array<unsigned long, MAX_NODES / BITS> mask{};
  if (node >= 0 && node < MAX_NODES) {
    mask[static_cast<std::size_t>(node / BITS)] = 1UL << (node % BITS);
    if (syscall(SYS_mbind, extent.base, extent.bytes, MPOL_BIND, mask.data(), MAX_NODES + 1, 0) ==
        0)
      return;
    if (errno == EPERM || errno == ENOSYS) {
      // Containers and kernels without NUMA. If there is only one node, no placement is needed.
      if (node == 0 && !std::filesystem::exists("/sys/devices/system/node/node1")) return;
      return log(LogLevel::WARN, what + " may be on any NUMA node: mbind(2) for affinity " +
                                     std::to_string(node) + " is not permitted here (" +
                                     std::strerror(errno) + ")");
    }
  }
  const std::string reason = std::strerror(errno);
  std::string nodes;
  std::ifstream online("/sys/devices/system/node/online");
  if (!(online >> nodes)) nodes = "0";
  throw Error(Status::INVALID_PARAMETER, what + ": affinity is " + std::to_string(node) +
                                             ", and memory cannot be placed on that NUMA node (" +
                                             reason + "); this host has " + nodes +
                                             ": set affinity to one of these");
}

/// Why hugepages could not be taken on a NUMA node, although all nodes together have enough.
/// `taken`: those that the region has already.
std::string too_few_on_node(int node, std::size_t page, std::uint64_t needed, std::uint64_t taken) {
  const std::string kib = std::to_string(page >> 10U);
  const std::string folder = "/sys/devices/system/node/node" + std::to_string(node) +
                             "/hugepages/hugepages-" + kib + "kB/";
  std::uint64_t total = 0;
  std::uint64_t free = 0;
  std::ifstream(folder + "nr_hugepages") >> total;
  std::ifstream(folder + "free_hugepages") >> free;
  const std::uint64_t had = std::min(free + taken, total);
  if (had >= needed) {
    return "cannot take " + std::to_string(needed) + " hugepages of " + kib +
           " KiB, although NUMA node " + std::to_string(node) + " has " + std::to_string(had) +
           "; raise hugetlb.*.max of the control group of this process";
  }
  return "needs " + std::to_string(needed) + " hugepages of " + kib + " KiB on NUMA node " +
         std::to_string(node) + ", and " + std::to_string(had) +
         " are free there; reserve them: echo " + std::to_string(total - had + needed) +
         " | sudo tee " + folder + "nr_hugepages";
}

/// `taken`: bytes that the region has already.
Error shortage(const MemoryRegionConfig& config, std::size_t bytes, std::size_t page,
               std::size_t taken) {
  const int error = errno;
  const std::string reason = std::strerror(error);
  std::string text = "memory region '" + config.name_ + "': ";
  if (config.kind_ == MemoryKind::HUGE && error == EFAULT) {
    text += too_few_on_node(config.affinity_, page, bytes / page, taken / page);
  } else if (config.kind_ == MemoryKind::HUGE) {
    text += "needs " + std::to_string(bytes / page) + " hugepages of " +
            std::to_string(page >> 10U) + " KiB (" + reason + "); " +
            Hugepages::now().remedy(bytes / page);
  } else {
    text += "cannot allocate " + std::to_string(config.num_bufs_) + " buffers of " +
            std::to_string(config.buf_size_) + " bytes (" + std::to_string(bytes) +
            " bytes: " + reason + "); lower num_bufs or buf_size";
  }
  return {Status::NO_FREE_PACKET_BUFFERS, text};
}

/// Touches the pages now, so that no packet waits for a page fault. Throws Error.
void populate(const RegionExtent& extent, const MemoryRegionConfig& config, std::size_t page) {
  const std::size_t piece = std::max(page, AT_ONCE);
  for (std::size_t at = 0; at < extent.bytes; at += piece) {
    const std::size_t end = std::min(at + piece, extent.bytes);
    if (madvise(extent.base + at, end - at, MADV_POPULATE_WRITE) == 0) continue;
    if (errno != EINVAL) throw shortage(config, extent.bytes, page, at);
    // Before Linux 5.14.
    for (std::size_t each = at; each < end; each += page) extent.base[each] = std::byte{0};
  }
}

void unmap(const RegionExtent& extent) noexcept {
  if (extent.base == nullptr) return;
  for (std::size_t at = 0; at < extent.bytes; at += AT_ONCE) {
    madvise(extent.base + at, std::min(AT_ONCE, extent.bytes - at), MADV_DONTNEED);
  }
  munmap(extent.base, extent.bytes);
}

class HostRegion final : public MemoryRegion {
 public:
  HostRegion(const MemoryRegionConfig& config, HostPages&& pages)
      : MemoryRegion(config, pages.extent(), Place::HOST), pages_(std::move(pages)) {}

 private:
  void free_memory() noexcept override { pages_.reset(); }

  std::optional<HostPages> pages_;
};

std::unique_ptr<MemoryRegion> allocate_host(const MemoryRegionConfig& config,
                                            const RegionNeeds& needs) {
  return std::make_unique<HostRegion>(config, HostPages(config, needs));
}

const RegisteredMemoryKind host(MemoryKind::HOST, allocate_host);
const RegisteredMemoryKind hugepages(MemoryKind::HUGE, allocate_host);

}  // namespace

void* map_pages(std::size_t bytes) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  bytes = (bytes + page - 1) / page * page;
  const std::size_t more = bytes >= AT_ONCE ? AT_ONCE : 0;
  void* const mapped =
      mmap(nullptr, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED || more == 0) return mapped;
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t before =
      (AT_ONCE - reinterpret_cast<std::uintptr_t>(begin) % AT_ONCE) % AT_ONCE;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, more - before);
  // Large regions need fewer page walks, if the kernel supports such pages.
  madvise(begin + before, bytes, MADV_HUGEPAGE);
  return begin + before;
}

HostPages::HostPages(const MemoryRegionConfig& config, const RegionNeeds& needs) {
  const bool huge = config.kind_ == MemoryKind::HUGE;
  // Mappings begin at a page boundary, which satisfies the alignment of every engine.
  const std::size_t page =
      huge ? Hugepages::now().size : static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  extent_ = RegionExtent::of(config, needs, page);
  void* const base = huge ? mmap(nullptr, extent_.bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0)
                          : map_pages(extent_.bytes);
  if (base == MAP_FAILED) throw shortage(config, extent_.bytes, page, 0);
  extent_.base = static_cast<std::byte*>(base);
  try {
    // For regions on a GPU, affinity is the number of the GPU.
    if (config.kind_ != MemoryKind::DEVICE)
      place(extent_, config.affinity_, "memory region '" + config.name_ + "'");
    populate(extent_, config, page);
  } catch (...) {
    unmap(extent_);
    throw;
  }
}

HostPages::~HostPages() { unmap(extent_); }

Hugepages Hugepages::now() {
  std::ifstream meminfo("/proc/meminfo");
  std::ifstream overcommitted("/proc/sys/vm/nr_overcommit_hugepages");
  return of(meminfo, overcommitted);
}

Hugepages Hugepages::of(std::istream& meminfo, std::istream& overcommitted) {
  Hugepages pages;
  std::uint64_t free = 0;
  std::uint64_t reserved = 0;
  std::uint64_t surplus = 0;
  std::string key;
  for (std::uint64_t number = 0; meminfo >> key; meminfo.ignore(256, '\n')) {
    if (!key.starts_with("Huge") || !(meminfo >> number)) continue;
    if (key == "Hugepagesize:" && number > 0) pages.size = number * 1024;
    if (key == "HugePages_Total:") pages.total = number;
    if (key == "HugePages_Free:") free = number;
    if (key == "HugePages_Rsvd:") reserved = number;
    if (key == "HugePages_Surp:") surplus = number;
  }
  std::uint64_t more = 0;
  overcommitted >> more;
  pages.available = free - std::min(free, reserved) + more - std::min(more, surplus);
  return pages;
}

std::string Hugepages::remedy(std::uint64_t needed) const {
  return "reserve them: echo " + std::to_string(total_for(needed)) +
         " | sudo tee /proc/sys/vm/nr_hugepages";
}

std::uint64_t hugepages_for(const MemoryRegionConfig& region, std::size_t page) {
  return RegionExtent::of(region, {}, page).bytes / page;
}

void find_absent_hugepages(const std::vector<const MemoryRegionConfig*>& regions,
                           std::vector<Error>& absent) {
  const Hugepages pages = Hugepages::now();
  std::uint64_t needed = 0;
  std::size_t count = 0;
  std::string names;
  for (const MemoryRegionConfig* region : regions) {
    if (region->kind_ != MemoryKind::HUGE) continue;
    const std::uint64_t own = hugepages_for(*region, pages.size);
    names += (count++ == 0 ? "'" : ", '") + region->name_ + "' (" + std::to_string(own) + ")";
    needed += own;
  }
  if (needed <= pages.available) return;
  absent.emplace_back(
      Status::NO_FREE_PACKET_BUFFERS,
      (count == 1 ? "memory region " + names + " needs " : "memory regions " + names + " need ") +
          std::to_string(needed) + " hugepages of " + std::to_string(pages.size >> 10U) +
          " KiB, and " + std::to_string(pages.available) + " are free; " + pages.remedy(needed));
}

}  // namespace daqiri::memory
