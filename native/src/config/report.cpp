// The report of a validation.
#include <algorithm>

#include "daqiri/config.h"

namespace daqiri {

bool ConfigReport::ok() const noexcept {
  return std::none_of(problems_.begin(), problems_.end(), [](const ConfigProblem& problem) {
    return problem.severity_ == ConfigProblem::Severity::ERROR;
  });
}

std::string ConfigReport::text() const {
  std::string text;
  for (const ConfigProblem& problem : problems_) {
    text += problem.file_ + ":";
    if (problem.line_ > 0)
      text += std::to_string(problem.line_) + ":" + std::to_string(problem.column_) + ":";
    text += problem.severity_ == ConfigProblem::Severity::ERROR ? " error: " : " warning: ";
    if (!problem.path_.empty()) text += problem.path_ + ": ";
    text += problem.message_ + "\n";
  }
  return text;
}

}  // namespace daqiri
