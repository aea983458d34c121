/// Collects the problems that validation finds, with the position of each key in the source.
#pragma once

#include <concepts>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "config/document.h"
#include "daqiri/config.h"
#include "system/text.h"

namespace daqiri::config {

inline std::string as_text(std::integral auto number) { return std::to_string(number); }
inline std::string_view as_text(std::string_view text) { return text; }

/// Concatenates the parts; numbers as decimal digits.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string text;
  (text.append(as_text(parts)), ...);
  return text;
}

class Findings {
 public:
  explicit Findings(std::string file = {}) : file_(std::move(file)) {}

  // Called by Place for a path.
  void place(const std::string& path, Mark mark) { marks_.emplace(path, mark); }
  [[nodiscard]] bool given(const std::string& path) const { return marks_.contains(path); }
  /// Without a mark, uses the position of the value of `path`, or of the nearest value that
  /// contains it.
  void add(ConfigProblem::Severity severity, const std::string& path, const std::string& message,
           std::optional<Mark> mark = {});
  void spoil(const std::string& path) { bad_.insert(path); }
  [[nodiscard]] bool bad(std::string_view path) const;
  /// Whether the value or one in it is wrong.
  [[nodiscard]] bool bad_within(std::string_view path) const;
  /// Whether no error was found.
  [[nodiscard]] bool good() const { return good_; }

  /// In the order of the source.
  [[nodiscard]] ConfigReport report() &&;

 private:
  /// Limit, because malicious text could cause more problems than fit into memory.
  static constexpr std::size_t MOST_PROBLEMS = 10000;

  std::string file_;
  std::map<std::string, Mark, std::less<>> marks_;
  std::set<std::string, std::less<>> bad_;
  bool good_{true};
  ConfigReport report_;
  std::size_t left_out_{0};
  ConfigProblem::Severity left_out_severity_{ConfigProblem::Severity::WARNING};
};

/// A value, identified by its path, such as interfaces[1].rx; reports problems with it.
class Place {
 public:
  explicit Place(Findings& findings, std::string path = {})
      : findings_(&findings), path_(std::move(path)) {}

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Place operator[](std::string_view key) const {
    return Place(*findings_, path_.empty() ? std::string(key) : concat(path_, ".", key));
  }
  [[nodiscard]] Place operator[](std::size_t index) const {
    return Place(*findings_, concat(path_, "[", index, "]"));
  }
  [[nodiscard]] bool given() const { return findings_->given(path_); }
  /// Whether the value, or one that contains it, is wrong.
  [[nodiscard]] bool bad() const { return findings_->bad(path_); }
  /// Whether the value, one that contains it, or one in it is wrong.
  [[nodiscard]] bool bad_within() const { return bad() || findings_->bad_within(path_); }
  void stands_at(Mark mark) const { findings_->place(path_, mark); }
  /// Mark the value as wrong; the problem itself is reported elsewhere.
  void spoil() const { findings_->spoil(path_); }
  /// Has no effect if the value, or one that contains it, is already wrong: each mistake is
  /// reported once.
  template <class... Parts>
  void error(const Parts&... message) const {
    if (bad()) return;
    spoil();
    findings_->add(ConfigProblem::Severity::ERROR, path_, concat(message...));
  }
  template <class... Parts>
  void warning(const Parts&... message) const {
    findings_->add(ConfigProblem::Severity::WARNING, path_, concat(message...));
  }
  /// A problem with the key, which does not mark the value as wrong.
  template <class... Parts>
  void about_key(ConfigProblem::Severity severity, Mark key, const Parts&... message) const {
    findings_->add(severity, path_, concat(message...), key);
  }

 private:
  Findings* findings_;
  std::string path_;
};

}  // namespace daqiri::config
