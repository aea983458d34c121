/// Copies of a plan's frames, for displays.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "reorder/assembler.h"

namespace daqiri::reorder {

struct FrameCopy {
  /// Of the copies, from 1 on.
  std::uint64_t number{0};
  std::vector<std::uint8_t> data;
  ReorderBurstInfo info;
  std::uint64_t first_time{0};
  std::uint64_t last_time{0};
  std::uint32_t missing{0};
};

/// Copies a frame when somebody has asked since the last copy: as often as he asks, at most, and
/// never while nobody does.
class Preview {
 public:
  /// `memory`: where frames are; null: where the CPU reads them.
  explicit Preview(std::size_t frame_size, const memory::BufferOwner* memory = nullptr)
      : size_(frame_size), memory_(memory) {}

  /// A frame is handed on. Never waits for who asks; one thread at a time.
  void offer(const Frame& frame) noexcept {
    if (!wanted_.load(std::memory_order_acquire)) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    void* const to = latest_.data.data();
    const std::size_t bytes = frame.info.aggregate_len;
    if (memory_ == nullptr) {
      std::memcpy(to, frame.data, bytes);
    } else if (!memory_->copy_to_host(frame.data, to, bytes)) {
      return;
    }
    latest_.info = frame.info;
    latest_.first_time = frame.first_time;
    latest_.last_time = frame.last_time;
    latest_.missing = frame.missing;
    ++latest_.number;
    wanted_.store(false, std::memory_order_release);
  }

  /// The latest copy, if it is newer than number `after`; else one with number 0. The next frame
  /// will be copied.
  [[nodiscard]] FrameCopy newer(std::uint64_t after) {
    FrameCopy copy;
    const std::lock_guard lock(mutex_);
    latest_.data.resize(size_);
    if (latest_.number > after) {
      copy = latest_;
      copy.data.resize(copy.info.aggregate_len);
    }
    wanted_.store(true, std::memory_order_release);
    return copy;
  }

 private:
  std::size_t size_;
  const memory::BufferOwner* memory_;
  std::atomic<bool> wanted_{false};
  std::mutex mutex_;  // over the next
  FrameCopy latest_;
};

}  // namespace daqiri::reorder
