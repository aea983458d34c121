#include "config/fields.h"

namespace daqiri::config {

void Fields::word(Key key, std::string& value, Names names) {
  const auto parse = [&](std::string_view text) -> std::string {
    if (find_name(names, text) == nullptr) return "unknown word";
    value = text;
    return {};
  };
  formatted(key, alternatives(names), parse, [&] { return value; });
}

}  // namespace daqiri::config
