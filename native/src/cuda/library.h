/// Finds functions of a library that is loaded at run time.
#pragma once

#include <dlfcn.h>

namespace daqiri::cuda {

/// Returns false if the library has no such function.
template <typename Function>
[[nodiscard]] bool find_function(void* library, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace daqiri::cuda
