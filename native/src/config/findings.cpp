#include "config/findings.h"

#include <algorithm>
#include <utility>

namespace daqiri::config {
namespace {

/// Path of the value that contains `path`; empty for the root.
std::string_view parent(std::string_view path) {
  const std::size_t cut = path.find_last_of(".[");
  return cut == std::string_view::npos ? std::string_view{} : path.substr(0, cut);
}

}  // namespace

bool Findings::bad(std::string_view path) const {
  for (;; path = parent(path)) {
    if (bad_.contains(path)) return true;
    if (path.empty()) return false;
  }
}

bool Findings::bad_within(std::string_view path) const {
  for (auto each = bad_.lower_bound(path); each != bad_.end() && each->starts_with(path); ++each) {
    const char next = each->size() == path.size() ? '.' : (*each)[path.size()];
    if (path.empty() || next == '.' || next == '[') return true;
  }
  return false;
}

void Findings::add(ConfigProblem::Severity severity, const std::string& path,
                   const std::string& message, std::optional<Mark> mark) {
  good_ = good_ && severity != ConfigProblem::Severity::ERROR;
  if (report_.problems_.size() >= MOST_PROBLEMS) {
    ++left_out_;
    if (severity == ConfigProblem::Severity::ERROR) left_out_severity_ = severity;
    return;
  }
  for (std::string_view at = path; !mark; at = parent(at)) {
    if (const auto found = marks_.find(at); found != marks_.end()) mark = found->second;
    if (at.empty()) break;
  }
  const auto [line, column] = mark.value_or(Mark{});
  report_.problems_.push_back({severity, file_, line, column, path, message});
}

ConfigReport Findings::report() && {
  auto& problems = report_.problems_;
  std::ranges::stable_sort(problems, {}, [](const ConfigProblem& problem) {
    return std::pair(problem.line_, problem.column_);
  });
  if (left_out_ > 0)
    problems.push_back(
        {left_out_severity_, file_, 0, 0, {}, concat(left_out_, " more problems are not listed")});
  return std::move(report_);
}

}  // namespace daqiri::config

namespace daqiri {

bool ConfigReport::ok() const noexcept {
  return std::ranges::find(problems_, ConfigProblem::Severity::ERROR, &ConfigProblem::severity_) ==
         problems_.end();
}

std::string ConfigReport::text() const {
  std::string text;
  for (const ConfigProblem& problem : problems_) {
    text += problem.file_ + ":";
    if (problem.line_ > 0) text += config::concat(problem.line_, ":", problem.column_, ":");
    text += problem.severity_ == ConfigProblem::Severity::ERROR ? " error: " : " warning: ";
    text += problem.path_ + (problem.path_.empty() ? "" : ": ") + problem.message_ + "\n";
  }
  return text;
}

}  // namespace daqiri
