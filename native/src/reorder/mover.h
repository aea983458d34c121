/// Interface of movers, which copy payloads to frames if pollers do not do it themselves.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "daqiri/reorder.h"
#include "memory/region.h"
#include "reorder/plan.h"

namespace daqiri::reorder {

/// A payload to copy to a frame.
struct Transfer {
  /// The frame, and where the payload is in the batch: see Plan::place.
  std::byte* to;
  const std::byte* from;
  std::uint32_t at;
  std::uint32_t bytes;
  /// The frame's buffer.
  std::uint32_t frame;
  /// The packet's buffer, which is freed after it has been read; null: the caller owns it again
  /// when `move` returns.
  std::uint32_t buffer;
  memory::BufferOwner* owner;
};

/// A kernel of an application that processes each frame in place.
struct FrameKernel {
  /// CUDA C++ source of `extern "C" __global__ void name(T* data, unsigned long long elements,
  /// ...)`, with a pointer parameter for each array.
  std::string source;
  std::string name;
  struct Type {
    /// Kind in numpy: 'f', 'i', 'u'; other types are identified by their size only.
    char kind;
    std::size_t bytes;
  };
  /// Element type of frames.
  Type element;
  struct Array {
    Type element;
    std::span<const std::byte> data;
  };
  std::vector<Array> arrays;
};

/// Takes copies to do, in any order. One thread at a time.
class Copier {
 public:
  /// Copies in one call.
  static constexpr std::size_t CHUNK = 32;

  virtual ~Copier() = default;
  /// Where to write the copies of the next call of `move`.
  virtual Transfer* transfers() noexcept = 0;
  virtual void move(std::span<const Transfer> copies) noexcept = 0;
};

/// Performs copies. The destructor completes all of them.
class Mover : public Copier {
 public:
  Transfer* transfers() noexcept override { return transfers_.data(); }
  /// Wait until copies can be taken without waiting for earlier ones. Any thread, without a lock.
  virtual void wait_for_room() noexcept {}
  /// Write the fill value where no payload is copied; see Plan::fill.
  virtual void fill(std::uint32_t frame, std::byte* to, std::uint64_t at,
                    std::size_t bytes) noexcept = 0;
  /// Fill what is of no module.
  virtual void fill_gaps(std::uint32_t frame, std::byte* to) noexcept = 0;
  /// All copies to a frame were requested: the kernel follows. Called before `close`.
  virtual void process(std::uint32_t /*frame*/, std::byte* /*data*/,
                       std::size_t /*bytes*/) noexcept {}
  enum class Copies : std::uint8_t { DONE, FAILED, PENDING };
  /// No more copies to a frame follow. PENDING: FrameWaiter is notified later.
  virtual Copies close(std::uint32_t frame) noexcept = 0;
  /// No more work follows for a while.
  virtual void flush() noexcept {}
  /// As `flush`, but work that is worth collecting may wait. Returns when to call it again, on
  /// CLOCK_MONOTONIC; 0: not needed.
  virtual std::uint64_t flush_due(std::uint64_t /*now_ns*/) noexcept {
    flush();
    return 0;
  }
  /// Process later frames with a kernel, or with none (null). On return, the previous kernel is no
  /// longer in use. Any thread, except those that call the other functions, which hold `callers`.
  /// Throws Error without a change.
  virtual void set_kernel(const FrameKernel* kernel, std::mutex& callers);
  /// Use another stream of the GPU (CUstream) from now on, after work in the previous stream, which
  /// is complete on return; null: the mover's own stream. Threads and errors as for set_kernel.
  virtual void set_stream(void* stream, std::mutex& callers);
  /// CUevent for bursts of frames; it is complete, because frames are complete when they are
  /// delivered. Null: they have none.
  [[nodiscard]] virtual std::shared_ptr<void> event() const { return nullptr; }

 private:
  std::array<Transfer, CHUNK> transfers_;
};

/// Is notified when all copies to a closed frame have ended. Any thread.
class FrameWaiter {
 public:
  virtual ~FrameWaiter() = default;
  /// `good`: false if they have failed.
  virtual void frame_done(std::uint32_t frame, bool good) noexcept = 0;
};

/// Counts pending copies of each frame, and whether more can follow. Any thread.
class OpenCopies {
 public:
  /// `frames`: number of buffers for frames.
  explicit OpenCopies(std::size_t frames)
      : open_(std::make_unique<std::atomic<std::uint32_t>[]>(frames)) {}

  void add(std::uint32_t frame, std::uint32_t copies = 1) noexcept {
    open_[frame].fetch_add(copies, std::memory_order_relaxed);
  }
  /// No more copies follow. Returns true if all are done and the frame can be used again.
  [[nodiscard]] bool close(std::uint32_t frame) noexcept {
    if (open_[frame].fetch_or(CLOSED, std::memory_order_acq_rel) != 0) return false;
    open_[frame].store(0, std::memory_order_relaxed);
    return true;
  }
  /// This many copies are done. Returns true if the frame was closed before, and these were its
  /// last.
  [[nodiscard]] bool finish(std::uint32_t frame, std::uint32_t copies) noexcept {
    if (open_[frame].fetch_sub(copies, std::memory_order_acq_rel) != (CLOSED | copies))
      return false;
    open_[frame].store(0, std::memory_order_relaxed);
    return true;
  }

 private:
  static constexpr std::uint32_t CLOSED = 1U << 31U;
  std::unique_ptr<std::atomic<std::uint32_t>[]> open_;
};

/// Makes the mover of a plan on a GPU, with frames in `output`. Throws Error.
using MakeGpuMover = std::unique_ptr<Mover> (*)(const Plan& plan, const ReorderConfig& config,
                                                const memory::MemoryRegion& output,
                                                FrameWaiter& waiter);
/// Define as a static object next to the registered mover.
struct RegisteredGpuMover {
  explicit RegisteredGpuMover(MakeGpuMover make) noexcept;
};
/// Throws Error NOT_SUPPORTED if this build has none.
[[nodiscard]] std::unique_ptr<Mover> make_gpu_mover(const Plan& plan, const ReorderConfig& config,
                                                    const memory::MemoryRegion& output,
                                                    FrameWaiter& waiter);

}  // namespace daqiri::reorder
