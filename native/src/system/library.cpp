#include "system/library.h"

#include <dlfcn.h>

#include "daqiri/version.h"

namespace daqiri {

const char* library_version() noexcept { return DAQIRI_VERSION; }

std::string library_path() {
  static const char here = 0;
  Dl_info info{};
  return dladdr(&here, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace daqiri
