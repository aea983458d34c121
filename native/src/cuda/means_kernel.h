/// The kernel that averages blocks of a frame's pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/driver.h"
#include "cuda/module.h"
#include "memory/block_means.h"

namespace daqiri::cuda {

/// Compiled for the GPU and the type of pixels.
class MeansKernel {
 public:
  /// Throws Error; `what` names the user of the kernel.
  MeansKernel(const Context& context, const memory::Pixels& pixels, const std::string& what);

  /// Results are bit-identical to those of memory::block_means. `means`: writable by the GPU. The
  /// GPU must be current.
  Result launch(const Functions& call, const std::byte* frame, std::uint32_t binning, float* means,
                void* stream) const noexcept;

 private:
  memory::Pixels pixels_;
  Module module_;
};

}  // namespace daqiri::cuda
