/// Reads log lines in a test.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "system/log.h"

namespace daqiri::test {

/// Takes the log lines while it exists. The session sets the level.
class LogTaker {
 public:
  LogTaker() {
    attach_log();
    take_log_records();
  }
  LogTaker(const LogTaker&) = delete;
  LogTaker& operator=(const LogTaker&) = delete;
  ~LogTaker() {
    take_log_records();
    detach_log();
  }
  /// Lines since the last call of `forget`, and those of them that contain a text.
  const std::vector<std::string>& lines() {
    for (const LogRecord& record : take_log_records().records) lines_.push_back(record.text);
    return lines_;
  }
  std::size_t lines_with(const std::string& text) {
    return static_cast<std::size_t>(std::ranges::count_if(
        lines(), [&](const std::string& line) { return line.find(text) != std::string::npos; }));
  }
  void forget() {
    lines();
    lines_.clear();
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace daqiri::test
