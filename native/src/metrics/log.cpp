#include "metrics/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <string>

namespace daqiri {

namespace {
std::atomic<LogLevel> threshold{LogLevel::WARN};
}

void set_log_level(LogLevel level) noexcept { threshold.store(level, std::memory_order_relaxed); }

void log(LogLevel level, std::string_view text) noexcept {
  static constexpr std::array<std::string_view, 7> NAMES{"trace", "debug",    "info", "warning",
                                                         "error", "critical", "off"};
  if (level < threshold.load(std::memory_order_relaxed) || level == LogLevel::OFF) return;
  try {
    std::string line("daqiri: ");
    line.append(NAMES[static_cast<std::size_t>(level)]).append(": ").append(text).append("\n");
    // One write, so that lines of several threads do not mix.
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace daqiri
