/// The module of engine odd, and where modules are looked for.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace daqiri::test {

/// In the build folder, beside the test program.
inline std::filesystem::path odd_module() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return program.parent_path() / "tests" / "engines" / "odd" / "daqiri_engine_odd.so";
}

inline void use_modules(const std::filesystem::path& folder) {
  setenv("DAQIRI_ENGINE_PATH", folder.c_str(), 1);
}

}  // namespace daqiri::test
