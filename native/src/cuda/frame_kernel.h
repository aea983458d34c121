/// A kernel of an application, which processes frames in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "cuda/module.h"
#include "reorder/mover.h"

namespace daqiri::cuda {

/// CUDA C++ source that compiles only if the kernel has the right parameters.
std::string checked_source(const reorder::FrameKernel& kernel);

/// A compiled kernel with copies of its arrays in GPU memory. Must not be in use when it is
/// destroyed.
class FrameKernel {
 public:
  /// Arrays are available for everything launched on `stream` from now on. Throws Error; `what`
  /// names the user of the kernel.
  FrameKernel(const Context& context, const reorder::FrameKernel& kernel, const std::string& what,
              void* stream);
  FrameKernel(const FrameKernel&) = delete;
  FrameKernel& operator=(const FrameKernel&) = delete;

  /// One thread at a time, with the GPU current.
  Result launch(const Functions& call, std::byte* data, std::size_t bytes, void* stream) noexcept;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  void copy_arrays(const Context& context, const reorder::FrameKernel& kernel,
                   const std::string& what, void* stream);

  std::string name_;
  std::size_t element_bytes_;
  Module module_;
  std::vector<DeviceAllocation> arrays_;
  // Arguments of a launch.
  std::uint64_t data_{0};
  unsigned long long elements_{0};
  std::vector<void*> arguments_;
};

}  // namespace daqiri::cuda
