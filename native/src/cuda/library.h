/// Functions of a library that is loaded when it is needed.
#pragma once

#include <dlfcn.h>

namespace daqiri::cuda {

/// False: the library has none of that name.
template <typename Function>
[[nodiscard]] bool find_function(void* library, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace daqiri::cuda
