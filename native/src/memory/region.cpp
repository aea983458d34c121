#include "memory/region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "daqiri/error.h"

namespace daqiri::memory {

namespace {

constexpr std::size_t ALIGNMENT = 64;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

/// Default hugepage size in bytes; 2 MiB where the kernel does not say.
std::size_t hugepage_size() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  std::size_t kib = 0;
  std::string unit;
  while (meminfo >> key) {
    if (key == "Hugepagesize:" && meminfo >> kib >> unit) return kib * 1024;
    meminfo.ignore(256, '\n');
  }
  return std::size_t{2} << 20U;
}

std::byte* map_pages(std::size_t bytes, int flags) {
  void* address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
}

}  // namespace

std::unique_ptr<MemoryRegion> MemoryRegion::allocate(const MemoryRegionConfig& config) {
  const std::string what = "memory region '" + config.name_ + "'";
  if (config.kind_ == MemoryKind::DEVICE || config.kind_ == MemoryKind::HOST_PINNED) {
    throw Error(Status::NOT_SUPPORTED,
                what + ": kind '" +
                    (config.kind_ == MemoryKind::DEVICE ? "device" : "host_pinned") +
                    "' needs CUDA, and this build has no CUDA; use kind 'host' or 'huge', or a "
                    "build with CUDA");
  }
  const std::size_t stride = round_up(config.buf_size_, ALIGNMENT);
  const bool huge = config.kind_ == MemoryKind::HUGE;
  const std::size_t page = huge ? hugepage_size() : static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t bytes = round_up(stride * config.num_bufs_, page);
  // Pages are touched now, so that no packet waits for the kernel to find one.
  std::byte* base = map_pages(bytes, MAP_POPULATE | (huge ? MAP_HUGETLB : 0));
  if (base == nullptr) {
    const std::string reason = std::strerror(errno);
    if (huge) {
      const std::size_t pages = bytes / page;
      throw Error(Status::NO_FREE_PACKET_BUFFERS,
                  what + ": needs " + std::to_string(pages) + " hugepages of " +
                      std::to_string(page >> 10U) + " KiB (" + reason + "); reserve them: echo " +
                      std::to_string(pages) + " | sudo tee /proc/sys/vm/nr_hugepages");
    }
    throw Error(Status::NO_FREE_PACKET_BUFFERS,
                what + ": cannot allocate " + std::to_string(config.num_bufs_) + " buffers of " +
                    std::to_string(config.buf_size_) + " bytes (" + std::to_string(bytes) +
                    " bytes: " + reason + "); lower num_bufs or buf_size");
  }
  return std::unique_ptr<MemoryRegion>(new MemoryRegion(config, base, stride, bytes));
}

MemoryRegion::MemoryRegion(MemoryRegionConfig config, std::byte* base, std::size_t stride,
                           std::size_t bytes)
    : config_(std::move(config)),
      base_(base),
      stride_(stride),
      bytes_(bytes),
      free_(static_cast<std::uint32_t>(config_.num_bufs_)) {}

MemoryRegion::~MemoryRegion() { munmap(base_, bytes_); }

}  // namespace daqiri::memory
