// Configurations that contain every key, and helpers to edit them.
#pragma once

#include <string>
#include <string_view>

#include <catch2/catch.hpp>

#include "config/document.h"
#include "daqiri/config.h"

namespace daqiri::test {

extern const char* const RAW;
extern const char* const REORDER;
extern const char* const FRAMES;
/// FRAMES with the plans at the top level.
extern const char* const JOINT;
extern const char* const FLEX;
extern const char* const ECPRI;
extern const char* const SOCKET;
extern const char* const ROCE;
extern const char* const LEGACY;

/// The result of loading a text.
struct Loaded {
  NetworkConfig config;
  ConfigReport report;
};

inline Loaded load(std::string_view text) {
  Loaded loaded;
  loaded.report = load_config_text(text, "test.yaml", loaded.config);
  return loaded;
}

inline std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const std::size_t at = text.find(what);
  INFO("looking for: " << what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

inline std::size_t count(const ConfigReport& report, ConfigProblem::Severity severity) {
  std::size_t n = 0;
  for (const ConfigProblem& problem : report.problems_) n += problem.severity_ == severity ? 1 : 0;
  return n;
}
inline std::size_t errors(const ConfigReport& report) {
  return count(report, ConfigProblem::Severity::ERROR);
}
inline std::size_t warnings(const ConfigReport& report) {
  return count(report, ConfigProblem::Severity::WARNING);
}

/// Requires one error, at `path`, with `part` in its message.
inline void require_error(std::string_view text, const std::string& path,
                          const std::string& part = "") {
  const Loaded loaded = load(text);
  INFO(loaded.report.text());
  REQUIRE_FALSE(loaded.report.ok());
  REQUIRE(errors(loaded.report) == 1);
  for (const ConfigProblem& problem : loaded.report.problems_) {
    if (problem.severity_ != ConfigProblem::Severity::ERROR) continue;
    CHECK(problem.path_ == path);
    CHECK_THAT(problem.message_, Catch::Contains(part));
    CHECK(problem.line_ > 0);
    CHECK(problem.column_ > 0);
  }
}

/// Requires that the text loads with one warning, at `path`, with `part` in its message.
inline Loaded require_warning(std::string_view text, const std::string& path,
                              const std::string& part = "") {
  Loaded loaded = load(text);
  INFO(loaded.report.text());
  REQUIRE(loaded.report.ok());
  REQUIRE(warnings(loaded.report) == 1);
  CHECK(loaded.report.problems_.front().path_ == path);
  CHECK_THAT(loaded.report.problems_.front().message_, Catch::Contains(part));
  return loaded;
}

/// Requires that the text loads without problems.
inline NetworkConfig require_clean(std::string_view text) {
  const Loaded loaded = load(text);
  INFO(loaded.report.text());
  REQUIRE(loaded.report.problems_.empty());
  return loaded.config;
}

}  // namespace daqiri::test
