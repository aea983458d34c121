/// What the validation of a configuration found.
#pragma once

#include <string>
#include <vector>

namespace daqiri {

/// \addtogroup configuration
/// \{

/// One finding of validation.
struct ConfigProblem {
  /// An ERROR keeps the configuration from being used.
  enum class Severity { ERROR, WARNING };
  /// Of this finding.
  Severity severity_{Severity::ERROR};
  /// File name, or "<text>" / "<config>" for text and structs built in code.
  std::string file_;
  /// 1-based; 0: unknown (structs built in code).
  int line_{0};
  /// Likewise.
  int column_{0};
  /// Path of the key, e.g. "interfaces[1].rx.flows[0].action.id".
  std::string path_;
  /// What was found and what is accepted.
  std::string message_;
};

/// Everything that validation found.
struct ConfigReport {
  /// In the order of the file.
  std::vector<ConfigProblem> problems_;
  /// No errors.
  [[nodiscard]] bool ok() const noexcept;
  /// One line per problem: file, line and column, `error` or `warning`, path, message.
  [[nodiscard]] std::string text() const;
};

/// \}

}  // namespace daqiri
