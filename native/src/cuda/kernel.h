/// The kernel that copies payloads to frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/driver.h"
#include "cuda/module.h"
#include "daqiri/reorder.h"

namespace daqiri::cuda {

/// Work of the threads of one packet, or of a row of a module in it.
struct Copy {
  std::uint64_t to;
  /// 0: write the fill value to `bytes` bytes of output.
  std::uint64_t from;
  std::uint64_t bytes;
  /// How far elements are apart in the output; 1, unless the plan has modules.
  std::int64_t step{1};
};

/// Division of a launch; constants of the kernel.
struct Geometry {
  /// Threads per packet.
  unsigned threads;
  /// Packets per block.
  unsigned packets;
  /// Loads in flight per thread.
  unsigned in_flight;

  /// A fast geometry for payloads of this many bytes; 0: any length.
  static Geometry of(const ReorderDataTypesConfig& types, std::uint32_t payload) noexcept;
};

/// CUDA C++ of `place(const Copy*, u32 count)`, with the plan's types and fill value as constants.
std::string kernel_of(const ReorderConfig& config, const Geometry& geometry);

/// The kernel of a plan, compiled for the GPU.
class Kernel {
 public:
  /// Throws Error; `what` names the user of the kernel.
  Kernel(const Context& context, const ReorderConfig& config, const std::string& what,
         const Geometry& geometry);

  /// `copies`: readable by the GPU. The GPU must be current.
  Result launch(const Functions& call, const Copy* copies, std::size_t count,
                void* stream) const noexcept;

 private:
  Geometry geometry_;
  Module module_;
};

/// The copies of a launch, in pinned memory, and the event after them.
struct PinnedLaunch {
  static constexpr std::uint32_t MOST_COPIES = 1024;

  HostAllocation memory;
  Event event;

  /// With `more` bytes behind the copies.
  Result make(const Context& context, std::size_t more = 0) noexcept;
  [[nodiscard]] Copy* copies() const noexcept { return static_cast<Copy*>(memory.get()); }
};

}  // namespace daqiri::cuda
