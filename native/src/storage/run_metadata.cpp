#include "storage/run_metadata.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "daqiri/error.h"

namespace daqiri {

namespace {

constexpr const char* UID = "uid";

constexpr std::array FIELDS{
    RunField{UID, RunValue::TEXT, true, "", "entry_identifier", 64, ""},
    RunField{"scan_id", RunValue::INTEGER, true, "run", "scan_id", 0, ""},
    RunField{"plan_name", RunValue::TEXT, true, "run", "plan_name", 128, ""},
    RunField{"start_time", RunValue::TEXT, true, "run", "start_time", 40, ""},
    RunField{"title", RunValue::TEXT, true, "", "title", 256, ""},
    RunField{"sample", RunValue::TEXT, true, "sample", "name", 256, ""},
    RunField{"experiment_identifier", RunValue::TEXT, true, "", "experiment_identifier", 128, ""},
    RunField{"detector", RunValue::TEXT, false, "", "local_name", 0, ""},
    RunField{"count_time", RunValue::NUMBER, false, "", "count_time", 0, "s"},
    RunField{"x_pixel_size", RunValue::NUMBER, false, "", "x_pixel_size", 0, "m"},
    RunField{"y_pixel_size", RunValue::NUMBER, false, "", "y_pixel_size", 0, "m"},
    RunField{"distance", RunValue::NUMBER, false, "", "distance", 0, "m"},
};

template <typename Number>
bool is_number(const std::string& text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && end == text.data() + text.size() &&
         std::isfinite(static_cast<double>(number));
}

void add(JsonObject& object, const RunField& field, const std::string& value) {
  // The key of a detector's name would be that of its object.
  const char* const key = !field.of_run && field.value == RunValue::TEXT ? "name" : field.key;
  switch (field.value) {
    case RunValue::TEXT:
      return object.text(key, value);
    case RunValue::INTEGER:
      return object.number(key, std::stoll(value));
    case RunValue::NUMBER: {
      std::array<char, 32> digits{};
      std::snprintf(digits.data(), digits.size(), "%.15g", std::stod(value));
      return object.json(key, digits.data());
    }
  }
}

void require_value(const std::string& key, const std::string& value) {
  const auto* const field =
      std::ranges::find_if(FIELDS, [&](const RunField& known) { return key == known.key; });
  if (field == FIELDS.end()) {
    std::string known;
    for (const RunField& each : FIELDS) known.append(known.empty() ? "" : ", ").append(each.key);
    throw Error(Status::INVALID_PARAMETER,
                "metadata has the key '" + key + "'; accepted are " + known);
  }
  const bool integer = field->value == RunValue::INTEGER;
  if (field->value == RunValue::TEXT ||
      (integer ? is_number<std::int64_t>(value) : is_number<double>(value)))
    return;
  throw Error(Status::INVALID_PARAMETER, "metadata has '" + value + "' as " + key +
                                             "; accepted is " +
                                             (integer ? "an integer" : "a number"));
}

}  // namespace

std::span<const RunField> run_fields() noexcept { return FIELDS; }

void require_run_metadata(const RunMetadata& metadata) {
  for (const auto& [key, value] : metadata) require_value(key, value);
}

bool names_run(const RunMetadata& metadata) { return !value_of(metadata, UID).empty(); }

std::string_view value_of(const RunMetadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string_view() : std::string_view(found->second);
}

void add_to(JsonObject& object, const RunMetadata& metadata) {
  for (const bool of_run : {true, false}) {
    JsonObject part;
    bool any = false;
    for (const RunField& field : FIELDS) {
      const auto found = metadata.find(field.key);
      if (field.of_run != of_run || found == metadata.end() || found->second.empty()) continue;
      add(part, field, found->second);
      any = true;
    }
    if (any) object.json(of_run ? "run" : "detector", part.line());
  }
}

}  // namespace daqiri
