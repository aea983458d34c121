/// A kernel compiled for a GPU.
#pragma once

#include <string>

#include "cuda/driver.h"

namespace daqiri::cuda {

class Module {
 public:
  /// `source`: CUDA C++ with `extern "C" __global__ void function(...)`. Throws Error; `what` names
  /// the user of the kernel.
  Module(const Context& context, const std::string& source, const std::string& function,
         const std::string& what);

  [[nodiscard]] void* function() const noexcept { return function_; }

 private:
  LoadedModule module_;
  void* function_{nullptr};
};

}  // namespace daqiri::cuda
