/// Collects what validation finds and knows where each key stands in the source.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "config/document.h"
#include "daqiri/config.h"

namespace daqiri::config {

/// `path.name`, or `name` at the root.
std::string join(std::string_view path, std::string_view name);
/// `path.name[index]`.
std::string element(std::string_view path, std::string_view name, std::size_t index);
/// Text of a source in single quotes: control characters escaped, cut when long.
std::string quoted(std::string_view text);

class Findings {
 public:
  explicit Findings(std::string file);

  /// Remember where the value of `path` stands.
  void place(const std::string& path, Mark mark);
  /// The source gives `path`.
  [[nodiscard]] bool given(const std::string& path) const;

  /// An error in the value of `path`. Nothing is added when the value, or one that holds it, has
  /// been found wrong before: one mistake is one problem.
  void error(const std::string& path, const std::string& message);
  void error_at(const std::string& path, Mark mark, const std::string& message);
  /// An error in a key rather than in its value.
  void key_error(const std::string& path, Mark mark, const std::string& message);
  void warning(const std::string& path, const std::string& message);
  void warning_at(const std::string& path, Mark mark, const std::string& message);
  /// From here on `path` counts as wrong; the problem itself is told elsewhere.
  void spoil(const std::string& path);

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
  bool left_out_error_{false};
};

}  // namespace daqiri::config
