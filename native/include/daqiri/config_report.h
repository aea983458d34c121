/// Results of the validation of a configuration.
#pragma once

#include <string>
#include <vector>

namespace daqiri {

/// \addtogroup configuration
/// \{

/// A problem that validation found.
struct ConfigProblem {
  /// A configuration with an ERROR cannot be used.
  enum class Severity { ERROR, WARNING };
  /// Severity of this problem.
  Severity severity_{Severity::ERROR};
  /// File name; "<text>" for text, "<config>" for structs built in code.
  std::string file_;
  /// Line, from 1; 0: unknown (structs built in code).
  int line_{0};
  /// Column, from 1; 0: unknown.
  int column_{0};
  /// Path of the key, e.g. "interfaces[1].rx.flows[0].action.id".
  std::string path_;
  /// The value that was found and the values that are accepted.
  std::string message_;
};

/// All problems that validation found.
struct ConfigReport {
  /// Problems in the order of the file.
  std::vector<ConfigProblem> problems_;
  /// Whether there are no errors; warnings are allowed.
  [[nodiscard]] bool ok() const noexcept;
  /// Return one line per problem: file, line and column, `error` or `warning`, path, message.
  [[nodiscard]] std::string text() const;
};

/// \}

}  // namespace daqiri
