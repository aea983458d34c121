#include <algorithm>

#include "config/schema.h"

namespace daqiri::config {
namespace {

constexpr std::string_view BOOLEANS[2][4] = {{"false", "no", "off", "n"},
                                             {"true", "yes", "on", "y"}};

std::string accepts_integer(const Range& range) {
  if (range.first == range.last) return concat(range.first);
  const std::string text = concat("an integer from ", range.first, " to ", range.last);
  return range.unit.empty() ? text : concat(text, " (", range.unit, ")");
}

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  });
}

}  // namespace

void Fields::integer(Key key, std::int64_t& value, const Range& range) {
  const auto read = [&](std::string_view text) { return read_integer(text, range, value); };
  scalar(key, accepts_integer(range), read, Node::scalar(std::to_string(value), false));
}

void Fields::integers(Key key, std::vector<std::string>& texts, const Range& range) {
  std::int64_t value = 0;
  const auto read = [&](std::string_view text) { return read_integer(text, range, value); };
  scalars(key, "a list of integers", accepts_integer(range), read, texts, false);
  for (std::string& text : texts) {
    value = range.first;
    static_cast<void>(read_integer(text, range, value));
    text = std::to_string(value);
  }
}

Fields::Read Fields::one_of(Names names, int* number) {
  return [=](std::string_view word) -> std::string {
    const Name* match = find_name(names, word);
    if (match == nullptr) return "unknown word";
    if (number != nullptr) *number = match->value;
    return {};
  };
}

void Fields::one_of(Key key, int& value, Names names) {
  const std::string text = text_of(names, value);
  // Readers of YAML 1.1 take off for false.
  scalar(key, alternatives(names), one_of(names, &value),
         Node::scalar(text, text.empty() || text == "off"));
}

void Fields::flag(Key key, bool& value) {
  const auto read = [&](std::string_view word) -> std::string {
    std::string lower(word);
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    for (const bool meaning : {false, true}) {
      const auto& spellings = BOOLEANS[meaning ? 1 : 0];
      if (std::find(std::begin(spellings), std::end(spellings), lower) == std::end(spellings))
        continue;
      value = meaning;
      return {};
    }
    return "not a truth value";
  };
  scalar(key, "true or false", read, Node::scalar(value ? "true" : "false", false));
}

void Fields::text(Key key, std::string& value) {
  const auto read = [&](std::string_view word) -> std::string {
    if (word.empty()) return "an empty text";
    if (std::any_of(word.begin(), word.end(),
                    [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }))
      return "a text with control characters";
    if (find_invalid_utf8(word) != std::string_view::npos) return "a text that is not UTF-8";
    value = word;
    return {};
  };
  scalar(key, "a text", read, Node::scalar(value, true));
}

void Fields::formatted(Key key, std::string_view accepts, const Read& read,
                       const std::string& text) {
  std::optional<Node> node;
  if (!text.empty()) node = Node::scalar(text, !is_plain(text));
  scalar(key, accepts, read, node);
}

void Fields::word(Key key, std::string& value, Names names) {
  const auto read = [&](std::string_view text) {
    const std::string wrong = one_of(names)(text);
    if (wrong.empty()) value = text;
    return wrong;
  };
  formatted(key, alternatives(names), read, value);
}

}  // namespace daqiri::config
