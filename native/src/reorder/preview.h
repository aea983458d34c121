/// Copies of a plan's frames, for displays.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/block_means.h"
#include "memory/region.h"
#include "reorder/assembler.h"

namespace daqiri::reorder {

/// The pixels of a plan's frames; without rows and columns if frames have fewer than two axes.
[[nodiscard]] memory::Pixels pixels_of(const ReorderConfig& config);
/// Throws Error INVALID_PARAMETER if the plan's frames do not support previews with this binning.
void require_binning(const ReorderConfig& config, std::int64_t binning);

struct FrameCopy {
  /// Number of the copy, counted from 1.
  std::uint64_t number{0};
  /// The frame, or floats: the means of its blocks.
  std::vector<std::uint8_t> data;
  ReorderBurstInfo info;
  std::uint64_t first_time{0};
  std::uint64_t last_time{0};
  std::uint32_t missing{0};
};

/// Copies a frame only if a reader has requested one since the last copy. Each requested binning
/// has separate copies.
class Preview {
 public:
  /// `memory`: the frames' memory on a device; null: the CPU can read frames.
  explicit Preview(std::size_t frame_size, const memory::Pixels& pixels = {},
                   const memory::MemoryRegion* memory = nullptr)
      : size_(frame_size), pixels_(pixels), memory_(memory) {}

  /// A frame is being delivered. Never waits for readers; one thread at a time.
  void offer(const Frame& frame) noexcept {
    if (wanted_.load(std::memory_order_acquire)) copy(frame);
  }

  /// The latest copy with this binning, if its number is greater than `after`; otherwise a copy
  /// with number 0. Requests a copy of the next frame. Throws Error if the frames' device does not
  /// support it.
  [[nodiscard]] FrameCopy newer(std::uint64_t after, std::uint32_t binning = 1);

  /// No more frames are offered: release the device's memory.
  void stop() noexcept;

 private:
  struct Copies {
    bool wanted{false};
    FrameCopy latest;
  };

  void copy(const Frame& frame) noexcept;
  /// Returns false if the device has failed.
  bool read(const Frame& frame, std::uint32_t binning, std::uint8_t* to) noexcept;

  std::size_t size_;
  memory::Pixels pixels_;
  const memory::MemoryRegion* memory_;
  std::atomic<bool> wanted_{false};
  std::mutex mutex_;  // for the members below
  /// By binning. All copies with means together have fewer means than a frame has pixels.
  std::map<std::uint32_t, Copies> copies_;
  std::uint64_t number_{0};
  bool stopped_{false};
  /// Null: the CPU computes means, or none were requested.
  std::unique_ptr<memory::DeviceMeans> means_;
};

}  // namespace daqiri::reorder
