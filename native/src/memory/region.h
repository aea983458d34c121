/// A memory region: one allocation divided into equal packet buffers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daqiri/config.h"
#include "daqiri/error.h"
#include "memory/buffers.h"

namespace daqiri::memory {

struct RegionNeeds;

/// Pages of GPUs as network cards map them.
inline constexpr std::size_t GPU_PAGE = std::size_t{64} << 10U;

/// Layout of a region's buffers: buffer `n` begins at base + n * stride, its data `headroom` later.
struct RegionExtent {
  std::byte* base{nullptr};
  std::size_t bytes{0};
  std::size_t stride{0};
  std::size_t headroom{0};

  /// Layout of the buffers of `config` with the engine's needs; `bytes`: in whole pages of `page`.
  static RegionExtent of(const MemoryRegionConfig& config, const RegionNeeds& needs,
                         std::size_t page);
};

/// Requirements of an engine for its regions, known before they are allocated.
struct RegionNeeds {
  /// Alignment of the first byte of packet data in each buffer; a power of two.
  std::size_t alignment{64};
  /// Free bytes in each buffer before the data.
  std::size_t headroom{0};
  /// Whether the distance of buffers must be a power of two.
  bool power_of_two_stride{false};
  /// For kind DEVICE: the engine cannot access this GPU's memory. It uses host memory, and packets
  /// are copied (DeviceCopies).
  bool staged{false};
  /// For `staged`: lets network cards write to the memory on the GPU, and returns why they cannot;
  /// empty: they can, and packets are not staged. Called at most once, with memory that exists
  /// until the engine is closed, or the next function was called. Throws Error. Null: no card may.
  std::function<std::string(const RegionExtent& on_device)> let_cards_write{};
  /// Undoes it: the memory is about to be freed.
  std::function<void()> keep_cards_away{};
  /// Why no card may; empty: the engine has none.
  std::string why_no_card{};
};

/// Copies of a region's buffers that the CPU can read, at a separate position for each.
class HostMirror {
 public:
  HostMirror() = default;
  HostMirror(const HostMirror&) = delete;
  HostMirror& operator=(const HostMirror&) = delete;
  virtual ~HostMirror() = default;

  /// Copy the first bytes of a buffer's data to its position, which begins at a page. Throws Error
  /// GENERIC_FAILURE if the device has failed. One thread at a time.
  virtual std::byte* copy(std::uint32_t buffer, std::size_t bytes) = 0;
};

/// Each kind of memory derives from this class, owns the allocation, and registers itself.
class MemoryRegion : public BufferOwner {
 public:
  /// Allocate as configured. Throws Error: NOT_SUPPORTED for a kind that is not registered,
  /// INVALID_PARAMETER for an affinity that this host does not have, NO_FREE_PACKET_BUFFERS if
  /// there is too little memory or too few hugepages (with the command that reserves them).
  static std::unique_ptr<MemoryRegion> allocate(const MemoryRegionConfig& config,
                                                const RegionNeeds& needs = {});

  [[nodiscard]] const MemoryRegionConfig& config() const noexcept { return config_; }
  [[nodiscard]] const RegionExtent& extent() const noexcept { return extent_; }
  [[nodiscard]] const MemoryRegion* region() const noexcept override { return this; }
  /// Of the owner that was lent the memory, if there is one.
  [[nodiscard]] BufferLevels levels() const noexcept override {
    return lent_ != nullptr ? lent_->levels() : BufferLevels{available(), config_.num_bufs_};
  }
  /// The engine divides the memory in its own way: `to` has all of the region's buffers, and gives
  /// them back before it is destroyed. Call before the session runs.
  void lend(const BufferOwner& to) noexcept { lent_ = &to; }
  /// Null: the CPU can read the buffers directly. Throws Error NO_FREE_PACKET_BUFFERS.
  [[nodiscard]] virtual std::unique_ptr<HostMirror> mirror() const { return nullptr; }
  /// Keeps a device's memory from being freed. Throws Error NOT_READY after it was freed.
  [[nodiscard]] virtual std::shared_ptr<const void> hold() const { return nullptr; }
  /// A dma-buf of the device memory in `device_extent`, for transfers by other devices or
  /// processes; the caller closes it. Throws Error NOT_SUPPORTED, NOT_READY after the memory was
  /// freed.
  [[nodiscard]] virtual int export_dma_buf() const;
  /// Layout of the buffers on the device.
  [[nodiscard]] RegionExtent device_extent() const noexcept;
  /// Address of the packet data in a buffer.
  [[nodiscard]] void* address(std::uint32_t buffer) const noexcept {
    return data_ + buffer * extent_.stride;
  }

  std::uint32_t take(std::uint32_t* buffers, std::uint32_t n) noexcept {
    return free_.take(buffers, n);
  }
  void give(const std::uint32_t* buffers, std::uint32_t n) noexcept final {
    free_.give(buffers, n);
    if (retired_.load(std::memory_order_acquire)) give_memory_back();
  }
  /// No thread takes buffers any longer: the memory is freed with the last buffer in use, at the
  /// latest with the region. Any thread.
  void retire() noexcept {
    retired_.store(true, std::memory_order_release);
    give_memory_back();
  }
  [[nodiscard]] std::uint32_t available() const noexcept { return free_.available(); }

 protected:
  MemoryRegion(const MemoryRegionConfig& config, const RegionExtent& extent, Place place);
  /// Frees the memory. All buffers must be free, and none may be taken later.
  virtual void free_memory() noexcept {}

 private:
  void give_memory_back() noexcept {
    if (free_.take_all(static_cast<std::uint32_t>(config_.num_bufs_))) free_memory();
  }

  MemoryRegionConfig config_;
  RegionExtent extent_;
  std::byte* data_;
  FreeList free_;
  std::atomic<bool> retired_{false};
  const BufferOwner* lent_{nullptr};
};

/// Why this build or host does not support the kind; empty: it does.
std::string why_absent(MemoryKind kind);

/// Checks for what regions need and this build or host does not have, before any is allocated:
/// kinds of memory, and enough free hugepages for all of them.
std::vector<Error> find_absent(const std::vector<const MemoryRegionConfig*>& regions);
/// The part for hugepages.
void find_absent_hugepages(const std::vector<const MemoryRegionConfig*>& regions,
                           std::vector<Error>& absent);

using AllocateRegion = std::unique_ptr<MemoryRegion> (*)(const MemoryRegionConfig& config,
                                                         const RegionNeeds& needs);

/// Why this host does not support a kind of memory; empty: it does.
using WhyAbsent = std::string (*)();

/// Registers a kind of memory. Define as a static object; the latest registration of a kind is
/// used. Any thread, before regions of the kind are made. Without `why_absent`, every host supports
/// it.
struct RegisteredMemoryKind {
  RegisteredMemoryKind(MemoryKind kind, AllocateRegion allocate,
                       WhyAbsent why_absent = nullptr) noexcept;
};

}  // namespace daqiri::memory
