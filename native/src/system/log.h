/// Log lines, off the packet path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daqiri/logging.hpp"

namespace daqiri {

/// Interface and queue that a line concerns; empty: none.
struct LogOrigin {
  std::string_view interface;
  std::string_view queue;
};

/// Write a line to the attached reader, otherwise to stderr: "daqiri: <level>: <text>". Never waits
/// for a reader: a line that cannot be written immediately is lost, and the next line contains the
/// number of lost lines. A text that repeats within a second is only counted; the next line with
/// this text contains the count. The text names the interface and queue; `origin` contains them for
/// programs.
void log(LogLevel level, std::string_view text, const LogOrigin& origin = {}) noexcept;

/// Like `log`, for lines of the application: writes every line, even if it repeats.
void log_as_it_is(LogLevel level, std::string_view text) noexcept;

/// "trace" to "critical".
std::string_view log_level_name(LogLevel level) noexcept;

/// A line that waits for its reader.
struct LogRecord {
  LogLevel level{LogLevel::OFF};
  /// CLOCK_REALTIME ns.
  std::uint64_t time{0};
  std::string text;
  /// See LogOrigin.
  std::string interface;
  std::string queue;
};

/// From now on, lines wait for `take_log_records`, up to a limit; further ones are lost and
/// counted. Returns an eventfd that is written with each line. Throws Error.
int attach_log();
/// Write lines to stderr again, starting with those that wait. Idempotent.
void detach_log() noexcept;

/// Call in a forked child: the reader belongs to the parent.
void disown_log() noexcept;

struct LogLines {
  std::vector<LogRecord> records;
  /// Lines lost since the last call.
  std::uint64_t lost{0};
};
/// Return the waiting lines. One thread at a time.
LogLines take_log_records();

}  // namespace daqiri
