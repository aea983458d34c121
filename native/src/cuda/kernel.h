/// The kernel that moves payloads to frames.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/driver.h"
#include "cuda/module.h"
#include "daqiri/reorder.h"

namespace daqiri::cuda {

/// What the threads of one packet do.
struct Copy {
  std::uint64_t to;
  /// 0: `bytes` of output get the fill value.
  std::uint64_t from;
  std::uint64_t bytes;
};

/// How a launch is divided; constants of the kernel.
struct Geometry {
  /// Of a packet.
  unsigned threads;
  /// Of a block.
  unsigned packets;
  /// Loads that a thread has under way at once.
  unsigned in_flight;

  /// What is fast for such payloads, of so many bytes; 0: of any length.
  static Geometry of(const ReorderDataTypesConfig& types, std::uint32_t payload) noexcept;
};

/// CUDA C++ of `place(const Copy*, u32 count)`, with the plan's types and fill value as constants.
std::string kernel_of(const ReorderConfig& config, const Geometry& geometry);

/// The kernel of a plan, compiled for the GPU.
class Kernel {
 public:
  /// Throws Error; `what` names who wants it.
  Kernel(const Context& context, const ReorderConfig& config, const std::string& what,
         const Geometry& geometry);

  /// `copies`: where the GPU reads them. With the GPU current.
  Result launch(const Functions& call, const Copy* copies, std::size_t count,
                void* stream) const noexcept;

 private:
  Geometry geometry_;
  Module module_;
};

}  // namespace daqiri::cuda
