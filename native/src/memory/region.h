/// A memory region: one allocation cut into equal packet buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "daqiri/config.h"
#include "memory/free_list.h"

namespace daqiri::memory {

class MemoryRegion {
 public:
  /// Allocate as configured. Throws Error: NOT_SUPPORTED for device memory in a build without CUDA,
  /// NO_FREE_PACKET_BUFFERS when memory or hugepages are short (the text names the command that
  /// reserves them).
  static std::unique_ptr<MemoryRegion> allocate(const MemoryRegionConfig& config);

  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;
  ~MemoryRegion();

  [[nodiscard]] const MemoryRegionConfig& config() const noexcept { return config_; }
  /// Bytes of packet data that fit a buffer.
  [[nodiscard]] std::uint32_t buf_size() const noexcept {
    return static_cast<std::uint32_t>(config_.buf_size_);
  }
  [[nodiscard]] void* address(std::uint32_t buffer) const noexcept {
    return base_ + buffer * stride_;
  }

  std::uint32_t take(std::uint32_t* buffers, std::uint32_t n) noexcept {
    return free_.take(buffers, n);
  }
  void give(const std::uint32_t* buffers, std::uint32_t n) noexcept { free_.give(buffers, n); }
  [[nodiscard]] std::uint32_t available() const noexcept { return free_.available(); }

 private:
  MemoryRegion(MemoryRegionConfig config, std::byte* base, std::size_t stride, std::size_t bytes);

  MemoryRegionConfig config_;
  std::byte* base_;
  std::size_t stride_;
  std::size_t bytes_;
  FreeList free_;
};

}  // namespace daqiri::memory
