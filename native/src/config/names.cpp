#include "config/names.h"

#include <algorithm>

#include "engine/registry.h"

namespace daqiri::config {

std::vector<Name> engine_names() {
  std::vector<Name> names(std::begin(ENGINES), std::end(ENGINES));
  for (const EngineEntry& engine : engines()) {
    if (find_name(names, engine.traits.name) == nullptr)
      names.push_back(name(engine.traits.name, EngineType::OTHER));
  }
  return names;
}

std::string engine_name(const CommonConfig& common) {
  return common.engine_type == EngineType::OTHER ? common.engine
                                                 : text_of(ENGINES, common.engine_type);
}

const Name* find_name(Names names, std::string_view text) noexcept {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const Name& entry) { return entry.text == text; });
  return found == names.end() ? nullptr : &*found;
}

std::string text_of(Names names, int value) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const Name& entry) { return entry.value == value; });
  return found == names.end() ? std::to_string(value) : std::string(found->text);
}

std::string alternatives(Names names) {
  std::string result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) result += i + 1 == names.size() ? " or " : ", ";
    result += "'" + std::string(names[i].text) + "'";
  }
  return result;
}

}  // namespace daqiri::config
