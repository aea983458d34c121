/// Copies of a plan's frames, for displays.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "burst/burst.h"
#include "memory/region.h"

namespace daqiri::reorder {

struct FrameCopy {
  /// Number of the copy, counted from 1.
  std::uint64_t number{0};
  std::shared_ptr<const std::byte[]> data;
  std::size_t bytes{0};
  ReorderBurstInfo info;
  /// What `info.columns` is.
  std::shared_ptr<const std::uint64_t[]> columns;
  std::uint64_t first_time{0};
  std::uint64_t last_time{0};
  std::uint32_t missing{0};
};

/// Holds a frame for readers if one was requested; the reader's thread copies and frees it.
class Preview {
 public:
  /// `region`: of the frames' buffers.
  explicit Preview(const memory::MemoryRegion& region) noexcept;
  Preview(const Preview&) = delete;
  Preview& operator=(const Preview&) = delete;
  ~Preview() { drop(); }

  /// A frame is about to be delivered, and only the caller holds it. Its receiver may change `pkts`
  /// later. Never waits, and copies nothing; one thread at a time. `unread`: there is no receiver
  /// that could lack the buffer.
  void offer(Burst& frame, bool unread) noexcept {
    if (wanted_.load(std::memory_order_relaxed)) hold(frame, unread);
  }
  /// Free the held frame, which is not copied.
  void drop() noexcept { static_cast<void>(take()); }

  /// Free the held frame, and forget the latest copy: frames have another form from now on.
  void forget() noexcept;

  /// The latest copy if its number is greater than `after`; otherwise a copy with number 0. Copies
  /// the held frame, and requests the next. Any thread. Throws std::bad_alloc.
  [[nodiscard]] FrameCopy newer(std::uint64_t after);

  /// No more frames are offered: copy the held frame.
  void stop() noexcept;

 private:
  struct Release {
    void operator()(Burst* frame) const noexcept { frame->release(); }
  };
  using Held = std::unique_ptr<Burst, Release>;

  void hold(Burst& frame, bool unread) noexcept;
  Held take(Burst* next = nullptr) noexcept {
    return Held(held_.exchange(next, std::memory_order_acq_rel));
  }
  /// Without effect if no frame is held, or its device has failed.
  void copy_held();

  const memory::MemoryRegion& region_;
  /// Number of other buffers that must be free for a frame to be held, if there is a receiver.
  std::uint32_t others_;
  std::atomic<bool> wanted_{false};
  std::atomic<Burst*> held_{nullptr};
  std::mutex mutex_;  // for the member below
  FrameCopy latest_;
};

}  // namespace daqiri::reorder
