/// Interface of movers, which copy payloads to frames if pollers do not do it themselves.
#pragma once

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

/// A payload on its way to a frame.
struct Transfer {
  std::byte* to;
  const std::byte* from;
  std::uint32_t bytes;
  /// The frame's buffer.
  std::uint32_t frame;
  /// The packet's buffer, which is given back when it has been read; null: it is the caller's again
  /// when `move` returns.
  memory::BufferOwner* owner;
  std::uint32_t buffer;
};

/// A kernel of an application, which processes each frame in place.
struct FrameKernel {
  /// CUDA C++ of `extern "C" __global__ void name(T* data, unsigned long long elements, ...)`,
  /// which takes a pointer for each array.
  std::string source;
  std::string name;
  struct Type {
    /// As numpy names it: 'f', 'i', 'u'; others are known by their size only.
    char kind;
    std::size_t bytes;
  };
  /// Of frames.
  Type element;
  struct Array {
    Type element;
    std::span<const std::byte> data;
  };
  std::vector<Array> arrays;
};

/// Does copies, in any order. One thread at a time. All copies are done when it has gone.
class Mover {
 public:
  virtual ~Mover() = default;
  virtual void move(std::span<const Transfer> copies) noexcept = 0;
  /// Write the fill value where nothing is moved to, a whole number of elements.
  virtual void fill(std::uint32_t frame, std::byte* to, std::size_t bytes) noexcept = 0;
  /// All copies to a frame were asked for: the kernel is next. Before `close`.
  virtual void process(std::uint32_t /*frame*/, std::byte* /*data*/,
                       std::size_t /*bytes*/) noexcept {}
  enum class Copies : std::uint8_t { DONE, FAILED, PENDING };
  /// No more copies to a frame follow. PENDING: FrameWaiter tells.
  virtual Copies close(std::uint32_t frame) noexcept = 0;
  /// Nothing more comes for a while.
  virtual void flush() noexcept {}
  /// Process frames with a kernel from now on, or with none (null). What was before is not in use
  /// any more when this returns. Any thread but those that call the others, who hold `callers`.
  /// Throws Error; nothing has changed then.
  virtual void set_kernel(const FrameKernel* kernel, std::mutex& callers);
  /// Work in another stream of the GPU (CUstream) from now on, behind what was before, which is
  /// done when this returns; null: in the mover's own. As set_kernel.
  virtual void set_stream(void* stream, std::mutex& callers);
  /// CUevent for bursts of frames, which are complete when they are handed on: so is this. Null:
  /// they have none.
  [[nodiscard]] virtual std::shared_ptr<void> event() const { return nullptr; }
};

/// Is notified when all copies to a closed frame are done. Any thread.
class FrameWaiter {
 public:
  virtual ~FrameWaiter() = default;
  /// `good`: false where they have failed.
  virtual void frame_done(std::uint32_t frame, bool good) noexcept = 0;
};

/// Of each frame, the copies that are not done, and whether more can follow. Any thread.
class OpenCopies {
 public:
  /// `frames`: buffers that frames can be in.
  explicit OpenCopies(std::size_t frames)
      : open_(std::make_unique<std::atomic<std::uint32_t>[]>(frames)) {}

  void add(std::uint32_t frame) noexcept { open_[frame].fetch_add(1, std::memory_order_relaxed); }
  /// No more follow. True: all are done, and the frame can be used again.
  [[nodiscard]] bool close(std::uint32_t frame) noexcept {
    if (open_[frame].fetch_or(CLOSED, std::memory_order_acq_rel) != 0) return false;
    open_[frame].store(0, std::memory_order_relaxed);
    return true;
  }
  /// So many are done. True: the frame was closed before, and these were its last.
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

/// Makes the mover of a plan on a GPU, whose frames are in `output`. Throws Error.
using MakeGpuMover = std::unique_ptr<Mover> (*)(const Plan& plan, const ReorderConfig& config,
                                                const memory::MemoryRegion& output,
                                                FrameWaiter& waiter);
/// Define as a static object next to the registered mover.
struct RegisteredGpuMover {
  explicit RegisteredGpuMover(MakeGpuMover make) noexcept;
};
/// Throws Error NOT_SUPPORTED where this build has none.
[[nodiscard]] std::unique_ptr<Mover> make_gpu_mover(const Plan& plan, const ReorderConfig& config,
                                                    const memory::MemoryRegion& output,
                                                    FrameWaiter& waiter);

}  // namespace daqiri::reorder
