#include "system/library.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "daqiri/version.h"

namespace daqiri {

const char* library_version() noexcept { return DAQIRI_VERSION; }

namespace {

/// The loader may know a path that is relative to the working directory of the beginning.
std::string find_path() noexcept {
  static const char here = 0;
  Dl_info info{};
  if (dladdr(&here, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::string() : path.string();
}

/// Before anything can change the working directory.
const std::string loaded_from = find_path();

}  // namespace

std::string library_path() { return loaded_from; }

}  // namespace daqiri
