/// Log lines, off the packet path.
#pragma once

#include <string_view>

#include "daqiri/config.h"

namespace daqiri {

/// Lines below this level are not written. Process-wide; a session sets it from `log_level`.
void set_log_level(LogLevel level) noexcept;
/// One line to stderr: "daqiri: <level>: <text>".
void log(LogLevel level, std::string_view text) noexcept;

}  // namespace daqiri
