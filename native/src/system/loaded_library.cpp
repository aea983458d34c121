#include "system/loaded_library.h"

#include <dlfcn.h>

namespace daqiri {

LoadedLibrary::LoadedLibrary(std::initializer_list<const char*> names) noexcept {
  for (const char* name : names) {
    if (loaded_ == nullptr) loaded_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
}

LoadedLibrary::Symbol LoadedLibrary::find(const char* name) noexcept {
  void* const found = loaded_ == nullptr ? nullptr : dlsym(loaded_, name);
  missing_ = missing_ || found == nullptr;
  return {found};
}

}  // namespace daqiri
