#include "memory/region.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <string>

#include "daqiri/error.h"

namespace daqiri::memory {

namespace {

constexpr std::array<const char*, 4> NAMES{"host", "host_pinned", "huge", "device"};
struct Kind {
  std::atomic<AllocateRegion> allocate{nullptr};
  std::atomic<WhyAbsent> why_absent{nullptr};
};
constinit std::array<Kind, NAMES.size()> kinds;

Kind& known(MemoryKind kind) noexcept { return kinds[static_cast<std::size_t>(kind)]; }

/// "memory region 'a': kind 'device' needs CUDA, ...".
Error no_cuda(const std::string& regions, MemoryKind kind, const std::string& why) {
  return {Status::NOT_SUPPORTED, regions + ": kind '" + NAMES[static_cast<std::size_t>(kind)] +
                                     "' needs CUDA, and " + why + "; use kind 'host' or 'huge'"};
}

constexpr std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

RegisteredMemoryKind::RegisteredMemoryKind(MemoryKind kind, AllocateRegion allocate,
                                           WhyAbsent why_absent) noexcept {
  known(kind).why_absent.store(why_absent, std::memory_order_release);
  known(kind).allocate.store(allocate, std::memory_order_release);
}

std::string why_absent(MemoryKind kind) {
  if (known(kind).allocate.load(std::memory_order_acquire) == nullptr)
    return "this build has no such memory";
  const WhyAbsent why = known(kind).why_absent.load(std::memory_order_acquire);
  return why == nullptr ? std::string() : why();
}

RegionExtent RegionExtent::of(const MemoryRegionConfig& config, const RegionNeeds& needs,
                              std::size_t page) {
  RegionExtent extent;
  extent.headroom = round_up(needs.headroom, needs.alignment);
  extent.stride = round_up(extent.headroom + config.buf_size_, needs.alignment);
  if (needs.power_of_two_stride) extent.stride = std::bit_ceil(extent.stride);
  extent.bytes = round_up(extent.stride * config.num_bufs_, page);
  return extent;
}

std::unique_ptr<MemoryRegion> MemoryRegion::allocate(const MemoryRegionConfig& config,
                                                     const RegionNeeds& needs) {
  if (const std::string why = why_absent(config.kind_); !why.empty())
    throw no_cuda("memory region '" + config.name_ + "'", config.kind_, why);
  return known(config.kind_).allocate.load(std::memory_order_acquire)(config, needs);
}

std::vector<Error> find_absent(const std::vector<const MemoryRegionConfig*>& regions) {
  std::vector<Error> absent;
  for (const MemoryKind kind : {MemoryKind::HOST_PINNED, MemoryKind::DEVICE}) {
    std::string names;
    std::size_t count = 0;
    for (const MemoryRegionConfig* region : regions) {
      if (region->kind_ != kind) continue;
      names += (count++ == 0 ? "'" : ", '") + region->name_ + "'";
    }
    if (count == 0) continue;
    if (const std::string why = why_absent(kind); !why.empty()) {
      absent.push_back(
          no_cuda((count == 1 ? "memory region " : "memory regions ") + names, kind, why));
    }
  }
  find_absent_hugepages(regions, absent);
  return absent;
}

int MemoryRegion::export_dma_buf() const {
  throw Error(Status::NOT_SUPPORTED,
              "memory region '" + name() + "' is of kind '" +
                  NAMES[static_cast<std::size_t>(config_.kind_)] +
                  "', and dma-bufs are of kind 'device'; name one of that kind");
}

RegionExtent MemoryRegion::device_extent() const noexcept {
  RegionExtent extent = extent_;
  if (const DeviceCopies* const copies = device_copies(); copies != nullptr && host_readable())
    extent.base = static_cast<std::byte*>(copies->on_device(extent.base));
  return extent;
}

MemoryRegion::MemoryRegion(const MemoryRegionConfig& config, const RegionExtent& extent,
                           Place place)
    : BufferOwner(config.name_, static_cast<std::uint32_t>(config.buf_size_), place,
                  config.kind_ == MemoryKind::DEVICE ? config.affinity_ : 0),
      config_(config),
      extent_(extent),
      data_(extent.base + extent.headroom),
      free_(static_cast<std::uint32_t>(config.num_bufs_)) {}

}  // namespace daqiri::memory
