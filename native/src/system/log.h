/// Log lines, off the packet path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daqiri/logging.hpp"

namespace daqiri {

/// Interface and queue that a line concerns; empty: none in particular.
struct LogOrigin {
  std::string_view interface;
  std::string_view queue;
};

/// Write a line to the attached reader, otherwise to stderr: "daqiri: <level>: <text>". Never waits
/// for a reader: a line that cannot be written at once is lost, and the next line has the number of
/// lost lines. A text that repeats within a second is only counted; the next line with this text
/// has the count. The text names the interface and queue; `origin` has them for programs.
void log(LogLevel level, std::string_view text, const LogOrigin& origin = {}) noexcept;

/// As above for lines of programs: each of them, also one that equals the line before it.
void log_as_it_is(LogLevel level, std::string_view text) noexcept;

/// "trace" to "critical".
std::string_view log_level_name(LogLevel level) noexcept;

/// A line that waits for its reader.
struct LogRecord {
  LogLevel level{LogLevel::OFF};
  /// CLOCK_REALTIME ns.
  std::uint64_t time{0};
  std::string text;
  /// As LogOrigin.
  std::string interface;
  std::string queue;
};

/// From now on lines wait for `take_log_records`, up to a number of them; the rest is lost and
/// counted. Returns an eventfd that is written with each line. Throws Error.
int attach_log();
/// Lines go to stderr again, those that wait first. Idempotent.
void detach_log() noexcept;

/// In a forked child: what is attached belongs to the parent.
void disown_log() noexcept;

struct LogLines {
  std::vector<LogRecord> records;
  /// Lines that found no room since the last call.
  std::uint64_t lost{0};
};
/// What waits. One thread at a time.
LogLines take_log_records();

}  // namespace daqiri
