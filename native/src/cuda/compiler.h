/// NVIDIA's compiler for kernels at run time (NVRTC), loaded when it is needed.
#pragma once

#include <string>

namespace daqiri::cuda {

/// Machine code of a CUDA C++ source for GPUs of compute capability `major`.`minor`. `newest`: the
/// major version of CUDA whose code the driver loads. Throws Error: NOT_SUPPORTED where no such
/// NVRTC is installed, INTERNAL_ERROR with its log.
std::string compile(const std::string& source, int major, int minor, int newest);

/// Why no kernel can be compiled here; empty: one can. Loads the driver.
std::string why_no_compiler();

}  // namespace daqiri::cuda
