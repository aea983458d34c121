/// A memory region: one allocation cut into equal packet buffers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daqiri/config.h"
#include "daqiri/error.h"
#include "memory/block_means.h"
#include "memory/buffers.h"
#include "system/doorbell.h"

namespace daqiri::memory {

/// What an engine needs of the regions that it is to use, known before they are allocated.
struct RegionNeeds {
  /// Of the first byte of packet data in each buffer; a power of two.
  std::size_t alignment{64};
  /// Free bytes in each buffer before the data.
  std::size_t headroom{0};
  /// Buffers begin at multiples of a power of two.
  bool power_of_two_stride{false};
  /// Of kind DEVICE: the engine uses the host's memory, and packets are copied (DeviceCopies).
  bool staged{false};
};

/// Where a region's buffers lie: buffer `n` begins at base + n * stride, its data `headroom` later.
struct RegionExtent {
  std::byte* base{nullptr};
  std::size_t bytes{0};
  std::size_t stride{0};
  std::size_t headroom{0};

  /// For buffers of `config` as an engine needs them; `bytes` in whole pages of `page`.
  static RegionExtent of(const MemoryRegionConfig& config, const RegionNeeds& needs,
                         std::size_t page);
};

/// A region's buffers where the CPU reads them: each has a place of its own.
class HostMirror {
 public:
  HostMirror() = default;
  HostMirror(const HostMirror&) = delete;
  HostMirror& operator=(const HostMirror&) = delete;
  virtual ~HostMirror() = default;

  /// Copy the first bytes of a buffer's data to its place, which begins with a page. Throws Error
  /// GENERIC_FAILURE when the device does not work any more. One thread at a time.
  virtual std::byte* copy(std::uint32_t buffer, std::size_t bytes) = 0;
};

/// Makes means of frames where a region has them and the CPU does not read. One thread at a time.
class DeviceMeans {
 public:
  DeviceMeans() = default;
  DeviceMeans(const DeviceMeans&) = delete;
  DeviceMeans& operator=(const DeviceMeans&) = delete;
  virtual ~DeviceMeans() = default;

  /// Have room for means of blocks of that size, and larger ones. Throws Error
  /// NO_FREE_PACKET_BUFFERS.
  virtual void reserve(std::uint32_t binning) = 0;
  /// As `block_means`, of a frame whose buffer the caller has. False: the device does not work any
  /// more.
  virtual bool make(const std::byte* frame, std::uint32_t binning, float* means) noexcept = 0;
};

/// A kind of memory derives from this, owns the allocation, and registers itself.
class MemoryRegion : public BufferOwner {
 public:
  /// Allocate as configured. Throws Error: NOT_SUPPORTED for a kind that is not registered,
  /// INVALID_PARAMETER for a place that this host does not have, NO_FREE_PACKET_BUFFERS when memory
  /// or hugepages are short (the text names the command that reserves them).
  static std::unique_ptr<MemoryRegion> allocate(const MemoryRegionConfig& config,
                                                const RegionNeeds& needs = {});

  [[nodiscard]] const MemoryRegionConfig& config() const noexcept { return config_; }
  [[nodiscard]] const RegionExtent& extent() const noexcept { return extent_; }
  /// The GPU that has it, or that uses it where no other is named.
  [[nodiscard]] int gpu() const noexcept {
    return config_.kind_ == MemoryKind::DEVICE ? config_.affinity_ : 0;
  }
  /// Whether GPUs read the buffers where the CPU has them.
  [[nodiscard]] bool pinned() const noexcept {
    return config_.kind_ == MemoryKind::HOST_PINNED || device_copies() != nullptr;
  }
  /// Null: the CPU can read the buffers themselves. Throws Error NO_FREE_PACKET_BUFFERS.
  [[nodiscard]] virtual std::unique_ptr<HostMirror> mirror() const { return nullptr; }
  /// Of frames in the buffers, for as long as the region is not given back. Null: the CPU can read
  /// them. Throws Error.
  [[nodiscard]] virtual std::unique_ptr<DeviceMeans> means(const Pixels& /*pixels*/) const {
    return nullptr;
  }
  /// Keeps a device's memory from being given back. Throws Error NOT_READY after that.
  [[nodiscard]] virtual std::shared_ptr<const void> hold() const { return nullptr; }
  /// A dma-buf of the memory on a device that `device_extent` tells of, for whoever else transfers
  /// to or from it; the caller closes it. Throws Error NOT_SUPPORTED, NOT_READY once the memory was
  /// given back.
  [[nodiscard]] virtual int export_dma_buf() const;
  /// Where the device has the buffers.
  [[nodiscard]] RegionExtent device_extent() const noexcept;
  /// Of the packet data in a buffer.
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
  /// Whoever takes buffers has ended: the memory is given back with the last that is not free, at
  /// the latest with the region. Any thread.
  void retire() noexcept {
    retired_.store(true, std::memory_order_release);
    give_memory_back();
  }
  [[nodiscard]] std::uint32_t available() const noexcept { return free_.available(); }
  /// A queue finds no buffer: others are to let go of those that only wait for more packets.
  void note_shortage() noexcept { shortages_.fetch_add(1, std::memory_order_relaxed); }
  /// As above, and the pollers that sleep are to know now.
  void ask_for_buffers() noexcept {
    note_shortage();
    for (Doorbell* poller : pollers_) poller->ring();
  }
  /// One more poller whose queues take buffers from here. Before any asks for buffers; it stays as
  /// long as any asks.
  void add_poller(Doorbell& poller) {
    if (std::ranges::find(pollers_, &poller) == pollers_.end()) pollers_.push_back(&poller);
  }
  [[nodiscard]] std::uint64_t shortages() const noexcept {
    return shortages_.load(std::memory_order_relaxed);
  }

 protected:
  MemoryRegion(const MemoryRegionConfig& config, const RegionExtent& extent, bool host_readable);
  /// Of the region: nobody has a buffer, and nobody gets one.
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
  std::atomic<std::uint64_t> shortages_{0};
  std::vector<Doorbell*> pollers_;
};

/// Why this build or host has no memory of the kind; empty: it has.
std::string why_absent(MemoryKind kind);

/// What regions need and this build or host lacks, before any is allocated: kinds of memory, and
/// free hugepages for all of them.
std::vector<Error> find_absent(const std::vector<const MemoryRegionConfig*>& regions);
/// Its part for hugepages.
void find_absent_hugepages(const std::vector<const MemoryRegionConfig*>& regions,
                           std::vector<Error>& absent);

using AllocateRegion = std::unique_ptr<MemoryRegion> (*)(const MemoryRegionConfig& config,
                                                         const RegionNeeds& needs);

/// Why this host has no memory of a kind; empty: it has.
using WhyAbsent = std::string (*)();

/// Makes a kind of memory known, as a static object beside it; the latest for a kind holds. Any
/// thread, before regions of it. No `why_absent`: every host has it.
struct RegisteredMemoryKind {
  RegisteredMemoryKind(MemoryKind kind, AllocateRegion allocate,
                       WhyAbsent why_absent = nullptr) noexcept;
};

}  // namespace daqiri::memory
