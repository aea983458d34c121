/// Who moves payloads to frames, where pollers do not do it themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

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

/// Does copies, in any order. One thread at a time. All copies are done when it has gone.
class Mover {
 public:
  virtual ~Mover() = default;
  virtual void move(std::span<const Transfer> copies) noexcept = 0;
  /// Write the fill value where nothing is moved to, a whole number of elements.
  virtual void fill(std::uint32_t frame, std::byte* to, std::size_t bytes) noexcept = 0;
  enum class Copies : std::uint8_t { DONE, FAILED, PENDING };
  /// No more copies to a frame follow. PENDING: FrameWaiter tells.
  virtual Copies close(std::uint32_t frame) noexcept = 0;
  /// Nothing more comes for a while.
  virtual void flush() noexcept {}
};

/// Who is told that all copies to a closed frame are done. Any thread.
class FrameWaiter {
 public:
  virtual ~FrameWaiter() = default;
  /// `good`: false where they have failed.
  virtual void frame_done(std::uint32_t frame, bool good) noexcept = 0;
};

/// Makes the mover of a plan on a GPU, whose frames are in `output`. Throws Error.
using MakeGpuMover = std::unique_ptr<Mover> (*)(const Plan& plan, const ReorderConfig& config,
                                                const memory::MemoryRegion& output,
                                                FrameWaiter& waiter);
/// As a static object beside what it registers.
struct RegisteredGpuMover {
  explicit RegisteredGpuMover(MakeGpuMover make) noexcept;
};
/// Throws Error NOT_SUPPORTED where this build has none.
[[nodiscard]] std::unique_ptr<Mover> make_gpu_mover(const Plan& plan, const ReorderConfig& config,
                                                    const memory::MemoryRegion& output,
                                                    FrameWaiter& waiter);

}  // namespace daqiri::reorder
