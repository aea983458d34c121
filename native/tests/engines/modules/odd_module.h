/// The module of the odd engines, and where modules are looked for.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "daqiri/config.h"
#include "engine/modules.h"

namespace daqiri::test {

/// In the build folder, beside the test program.
inline std::filesystem::path odd_module() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return program.parent_path() / "tests" / "engines" / "odd" / "daqiri_engine_odd.so";
}

inline void use_modules(const std::filesystem::path& folder) {
  setenv("DAQIRI_ENGINE_PATH", folder.c_str(), 1);
}

/// Load the module, and make a configuration one of "odd", or of another engine in it.
inline void use_odd_engine(NetworkConfig& config, const char* name = "odd") {
  use_modules(odd_module().parent_path());
  if (const std::string problem = load_engine("odd"); !problem.empty())
    throw std::runtime_error(problem);
  config.common_.engine = EngineType::OTHER;
  config.common_.engine_name_ = name;
  config.ifs_[0].address_ = "odd0";
}

/// Most packets that a worker has offered to an odd engine in one call; the module is loaded.
inline std::atomic<std::uint32_t>& odd_most_offered() {
  void* const module = dlopen(odd_module().c_str(), RTLD_NOW | RTLD_NOLOAD);
  void* const found = module == nullptr ? nullptr : dlsym(module, "odd_most_offered");
  if (found == nullptr) throw std::runtime_error("the module of the odd engines is not loaded");
  return *static_cast<std::atomic<std::uint32_t>*>(found);
}

}  // namespace daqiri::test
