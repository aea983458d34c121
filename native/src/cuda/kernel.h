/// The kernel that moves payloads to frames.
#pragma once

#include <cstdint>
#include <string>

#include "daqiri/reorder.h"

namespace daqiri::cuda {

/// What one block of threads does.
struct Copy {
  std::uint64_t to;
  /// 0: `bytes` of output get the fill value.
  std::uint64_t from;
  std::uint64_t bytes;
};

/// CUDA C++ of `place(const Copy*)`, with the plan's types and fill value as constants. It is
/// launched with a block for each copy.
std::string kernel_of(const ReorderConfig& config);

}  // namespace daqiri::cuda
