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

/// Of a plan's frames; without rows and columns where they have no two axes.
[[nodiscard]] memory::Pixels pixels_of(const ReorderConfig& config);
/// Throws Error INVALID_PARAMETER where the plan's frames have no previews with this binning.
void require_binning(const ReorderConfig& config, std::int64_t binning);

struct FrameCopy {
  /// Of the copies, from 1 on.
  std::uint64_t number{0};
  /// Of the frame, or floats: means of its blocks.
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
  /// `memory`: where frames are; null: where the CPU reads them.
  explicit Preview(std::size_t frame_size, const memory::Pixels& pixels = {},
                   const memory::MemoryRegion* memory = nullptr)
      : size_(frame_size), pixels_(pixels), memory_(memory) {}

  /// A frame is handed on. Never waits for who asks; one thread at a time.
  void offer(const Frame& frame) noexcept {
    if (wanted_.load(std::memory_order_acquire)) copy(frame);
  }

  /// The latest copy with this binning, which frames have, if it is newer than number `after`; else
  /// one with number 0. The next frame will be copied. Throws Error where the frames' device cannot
  /// do that.
  [[nodiscard]] FrameCopy newer(std::uint64_t after, std::uint32_t binning = 1);

  /// No more frames are offered: nothing of a device is held any more.
  void stop() noexcept;

 private:
  struct Copies {
    bool wanted{false};
    FrameCopy latest;
  };

  void copy(const Frame& frame) noexcept;
  /// False: the device does not work any more.
  bool read(const Frame& frame, std::uint32_t binning, std::uint8_t* to) noexcept;

  std::size_t size_;
  memory::Pixels pixels_;
  const memory::MemoryRegion* memory_;
  std::atomic<bool> wanted_{false};
  std::mutex mutex_;  // over the next
  /// By binning. All of them together have fewer means than a frame has pixels.
  std::map<std::uint32_t, Copies> copies_;
  std::uint64_t number_{0};
  bool stopped_{false};
  /// Null: the CPU makes means, or nobody has asked for any.
  std::unique_ptr<memory::DeviceMeans> means_;
};

}  // namespace daqiri::reorder
