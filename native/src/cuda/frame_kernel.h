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

/// CUDA C++ that does not compile unless the kernel takes what it gets.
std::string checked_source(const reorder::FrameKernel& kernel);

/// With copies of its arrays in the GPU's memory. Not in use any more when it goes.
class FrameKernel {
 public:
  /// What is launched on `stream` from now on finds the arrays. Throws Error; `what` names who
  /// wants it.
  FrameKernel(const Context& context, const reorder::FrameKernel& kernel, const std::string& what,
              void* stream);
  FrameKernel(const FrameKernel&) = delete;
  FrameKernel& operator=(const FrameKernel&) = delete;
  /// Without effect where the GPU is gone.
  ~FrameKernel();

  /// One thread at a time, with the GPU current.
  Result launch(const Functions& call, std::byte* data, std::size_t bytes, void* stream) noexcept;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  void copy_arrays(const Context& context, const reorder::FrameKernel& kernel,
                   const std::string& what, void* stream);
  void free_arrays(const Functions& call) noexcept;

  std::string name_;
  std::size_t element_bytes_;
  int gpu_;
  Module module_;
  std::vector<std::uint64_t> arrays_;
  // Where a launch finds its arguments.
  std::uint64_t data_{0};
  unsigned long long elements_{0};
  std::vector<void*> arguments_;
};

}  // namespace daqiri::cuda
