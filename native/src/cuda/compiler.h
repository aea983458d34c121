/// NVIDIA's runtime compiler for kernels (NVRTC), loaded on demand.
#pragma once

#include <string>

namespace daqiri::cuda {

/// Compile a CUDA C++ source to machine code for GPUs of compute capability `major`.`minor`.
/// `newest`: the major version of CUDA that the driver supports. Throws Error: NOT_SUPPORTED if no
/// matching NVRTC is installed, INTERNAL_ERROR with its log.
std::string compile(const std::string& source, int major, int minor, int newest);

/// Why kernels cannot be compiled here; empty: they can. Loads the driver.
std::string why_no_compiler();

}  // namespace daqiri::cuda
