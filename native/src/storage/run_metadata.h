/// What the files of a recording report about their run and their detector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "metrics/json_object.h"

namespace daqiri {

/// Values by the keys of `run_fields`.
using RunMetadata = std::map<std::string, std::string>;

enum class RunValue : std::uint8_t { TEXT, INTEGER, NUMBER };

/// A key, and where a file of frames has its value.
struct RunField {
  const char* key;
  RunValue value;
  /// Whether it describes the run; otherwise the detector.
  bool of_run;
  /// Group, below that of the run or of the detector; empty: that group itself.
  const char* group;
  const char* name;
  /// TEXT: bytes that are reserved while the run is not known.
  std::size_t reserved;
  /// NUMBER: its unit.
  const char* units;

  /// Group and name, relative to the group of the run or of the detector.
  [[nodiscard]] std::string path() const {
    return *group == '\0' ? name : std::string(group) + "/" + name;
  }
};

std::span<const RunField> run_fields() noexcept;

/// Throws Error INVALID_PARAMETER for a key that is not known, or a value that is not a number.
void require_run_metadata(const RunMetadata& metadata);
/// Whether the run is known.
bool names_run(const RunMetadata& metadata);
/// The value of a key; empty: there is none.
std::string_view value_of(const RunMetadata& metadata, const char* key);
/// Add the objects `run` and `detector`, if there are values.
void add_to(JsonObject& object, const RunMetadata& metadata);

}  // namespace daqiri
