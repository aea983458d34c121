/// Collects what validation finds and knows where each key stands in the source.
#pragma once

#include <concepts>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "config/document.h"
#include "daqiri/config.h"

namespace daqiri::config {

/// Text of a source in single quotes: control characters escaped, cut when long.
std::string quoted(std::string_view text);

/// The parts one after the other, numbers in digits.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string text;
  const auto add = [&](const auto& part) {
    if constexpr (std::integral<std::decay_t<decltype(part)>>) {
      text += std::to_string(part);
    } else {
      text += part;
    }
  };
  (add(parts), ...);
  return text;
}

class Findings {
 public:
  explicit Findings(std::string file) : file_(std::move(file)) {}

  /// Remember where the value of `path` stands.
  void place(const std::string& path, Mark mark) { marks_.emplace(path, mark); }
  /// The source gives `path`.
  [[nodiscard]] bool given(const std::string& path) const { return marks_.contains(path); }

  /// An error in the value of `path`. Nothing is added when the value, or one that holds it, has
  /// been found wrong before: one mistake is one problem.
  void error(const std::string& path, const std::string& message) {
    error_at(path, mark_of(path), message);
  }
  void error_at(const std::string& path, Mark mark, const std::string& message);
  /// Of a key rather than of its value.
  void key_error(const std::string& path, Mark mark, const std::string& message) {
    add(ConfigProblem::Severity::ERROR, path, mark, message);
  }
  void warning(const std::string& path, const std::string& message) {
    warning_at(path, mark_of(path), message);
  }
  void warning_at(const std::string& path, Mark mark, const std::string& message) {
    add(ConfigProblem::Severity::WARNING, path, mark, message);
  }
  /// From here on `path` counts as wrong; the problem itself is reported elsewhere.
  void spoil(const std::string& path) { bad_.insert(path); }

  /// `path`, or a value that holds it, is wrong.
  [[nodiscard]] bool bad(std::string_view path) const;

  /// In the order of the source.
  [[nodiscard]] ConfigReport report() &&;

 private:
  void add(ConfigProblem::Severity severity, const std::string& path, Mark mark,
           const std::string& message);
  /// Of `path`, or of the nearest value that holds it.
  [[nodiscard]] Mark mark_of(std::string_view path) const;

  /// A hostile text could ask for more problems than there is memory.
  static constexpr std::size_t MOST_PROBLEMS = 10000;

  std::string file_;
  std::map<std::string, Mark, std::less<>> marks_;
  std::set<std::string, std::less<>> bad_;
  ConfigReport report_;
  std::size_t left_out_{0};
  ConfigProblem::Severity left_out_severity_{ConfigProblem::Severity::WARNING};
};

/// A value by its path, such as interfaces[1].rx, and what is found about it.
class Place {
 public:
  explicit Place(Findings& findings, std::string path = {})
      : findings_(&findings), path_(std::move(path)) {}

  [[nodiscard]] const std::string& path() const { return path_; }
  /// The value of a key of this map.
  [[nodiscard]] Place operator[](std::string_view key) const {
    return Place(*findings_, path_.empty() ? std::string(key) : concat(path_, ".", key));
  }
  /// An element of this list.
  [[nodiscard]] Place operator[](std::size_t index) const {
    return Place(*findings_, concat(path_, "[", index, "]"));
  }
  [[nodiscard]] bool given() const { return findings_->given(path_); }
  [[nodiscard]] bool bad() const { return findings_->bad(path_); }
  template <class... Parts>
  void error(const Parts&... message) const {
    findings_->error(path_, concat(message...));
  }
  template <class... Parts>
  void warning(const Parts&... message) const {
    findings_->warning(path_, concat(message...));
  }

 private:
  Findings* findings_;
  std::string path_;
};

}  // namespace daqiri::config
