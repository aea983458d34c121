/// The library, or the program, that contains the engine.
#pragma once

#include <string>

namespace daqiri {

/// Its version, as DAQIRI_VERSION. What is compiled with its internal headers, the Python extension
/// and modules of engines, needs exactly this one.
[[nodiscard]] const char* library_version() noexcept;

/// The file that it was loaded from; empty: not known.
[[nodiscard]] std::string library_path();

}  // namespace daqiri
