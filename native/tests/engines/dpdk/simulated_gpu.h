/// A GPU whose memory faults when the CPU accesses it.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "memory/region.h"
#include "system/file.h"

namespace daqiri::test {

/// Memory of the GPU. Only `reached` can be accessed.
class GpuMemory {
 public:
  explicit GpuMemory(std::size_t bytes)
      : bytes_((bytes + PAGE - 1) / PAGE * PAGE), file_(memfd_create("gpu", MFD_CLOEXEC)) {
    bool made = ftruncate(file_.fd(), static_cast<off_t>(bytes_)) == 0;
    // Whole pages of a GPU.
    void* const space =
        mmap(nullptr, bytes_ + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    space_ = static_cast<std::byte*>(space);
    const auto at = reinterpret_cast<std::uintptr_t>(space);
    base_ = space_ + ((at + PAGE - 1) / PAGE * PAGE - at);
    made = made && mmap(base_, bytes_, PROT_NONE, MAP_SHARED | MAP_FIXED, file_.fd(), 0) == base_;
    reached_ = static_cast<std::byte*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd(), 0));
    if (!made || space == MAP_FAILED || reached_ == MAP_FAILED) throw std::bad_alloc();
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() {
    if (mappings != nullptr && mappings() > 0) freed_while_mapped = true;
    munmap(space_, bytes_ + PAGE);
    munmap(reached_, bytes_);
  }

  /// How often cards have memory of the GPU, and whether some was freed meanwhile.
  static inline unsigned (*mappings)(){nullptr};
  static inline bool freed_while_mapped{false};

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::byte* reached(std::uintptr_t on_gpu) const noexcept {
    return reached_ + (on_gpu - reinterpret_cast<std::uintptr_t>(base_));
  }
  [[nodiscard]] std::byte* reached(const void* on_gpu) const noexcept {
    return reached(reinterpret_cast<std::uintptr_t>(on_gpu));
  }

 private:
  static constexpr std::size_t PAGE = std::size_t{64} << 10U;

  std::size_t bytes_;
  File file_;
  std::byte* space_;
  std::byte* base_;
  std::byte* reached_;
};

/// A region as that of CUDA. The session's kind `device` after `register_gpu`.
class GpuRegion final : public memory::MemoryRegion {
 public:
  /// The latest that was made.
  static inline GpuRegion* latest{nullptr};
  /// Why no card writes to it; empty: cards do.
  static inline std::string why_staged;
  /// The next copies to the host that fail.
  static inline int bad_copies{0};

  static void register_gpu() {
    static const memory::RegisteredMemoryKind kind(
        MemoryKind::DEVICE, [](const MemoryRegionConfig& config, const memory::RegionNeeds& needs) {
          return make(config, needs);
        });
  }

  [[nodiscard]] const GpuMemory& gpu() const noexcept { return *gpu_; }
  [[nodiscard]] memory::DeviceCopies* device_copies() const noexcept override {
    return copies_.get();
  }
  [[nodiscard]] bool copy_to_host(const void* data, void* to,
                                  std::size_t bytes) const noexcept override {
    if (bad_copies > 0) return --bad_copies, false;
    std::memcpy(to, gpu_->reached(data), bytes);
    return true;
  }

 private:
  struct Copies final : memory::DeviceCopies {
    Copies(const GpuMemory& gpu, const std::byte* host)
        : DeviceCopies(gpu.base() - host), gpu_memory(gpu) {}
    cudaEvent_t to_device(const Packets& packets, cudaEvent_t after) override {
      for (std::uint32_t i = 0; i < packets.count; ++i) {
        std::memcpy(gpu_memory.reached(on_device(packets.addresses[i])), packets.addresses[i],
                    packets.bytes[i]);
      }
      return after;
    }
    void to_host(const Packets& packets, Behind /*behind*/) override {
      for (std::uint32_t i = 0; i < packets.count; ++i) {
        std::memcpy(on_host(packets.addresses[i]), gpu_memory.reached(packets.addresses[i]),
                    packets.bytes[i]);
      }
    }
    void gather(const Packets& /*packets*/, std::uint64_t /*to*/, std::size_t /*width*/) override {}
    void wait_for(cudaEvent_t /*event*/) override {}
    void finish() noexcept override {}
    [[nodiscard]] int gpu() const noexcept override { return 0; }
    const GpuMemory& gpu_memory;
  };

  static std::unique_ptr<memory::MemoryRegion> make(const MemoryRegionConfig& config,
                                                    const memory::RegionNeeds& needs) {
    memory::RegionExtent extent = memory::RegionExtent::of(config, needs, 4096);
    auto gpu = std::make_unique<GpuMemory>(extent.bytes);
    std::vector<std::byte> host(extent.bytes);
    memory::RegionExtent on_gpu = extent;
    on_gpu.base = gpu->base();
    on_gpu.bytes = gpu->bytes();
    extent.base = host.data();
    why_staged = needs.let_cards_write ? needs.let_cards_write(on_gpu) : needs.why_no_card;
    const bool by_cards = why_staged.empty();
    std::unique_ptr<GpuRegion> made(new GpuRegion(
        config, by_cards ? on_gpu : extent,
        by_cards ? memory::Place::DEVICE : memory::Place::PINNED, std::move(gpu), std::move(host)));
    latest = made.get();
    return made;
  }
  GpuRegion(const MemoryRegionConfig& config, const memory::RegionExtent& extent,
            memory::Place place, std::unique_ptr<GpuMemory> gpu, std::vector<std::byte> host)
      : MemoryRegion(config, extent, place),
        gpu_(std::move(gpu)),
        host_(std::move(host)),
        copies_(std::make_unique<Copies>(*gpu_, host_.data())) {}

  std::unique_ptr<GpuMemory> gpu_;
  std::vector<std::byte> host_;
  std::unique_ptr<Copies> copies_;
};

}  // namespace daqiri::test
