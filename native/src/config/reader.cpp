#include "config/reader.h"

#include <algorithm>
#include <map>

#include "config/formats.h"

namespace daqiri::config {
namespace {

constexpr std::string_view BOOLEANS[2][4] = {{"false", "no", "off", "n"},
                                             {"true", "yes", "on", "y"}};

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string describe(const Node& node) {
  switch (node.kind) {
    case Node::Kind::NONE:
      return "nothing";
    case Node::Kind::SCALAR:
      return quoted(node.text);
    case Node::Kind::LIST:
      return "a list";
    case Node::Kind::MAP:
      return "a map";
  }
  return {};
}

std::string accepts_integer(const Range& range) {
  if (range.first == range.last) return std::to_string(range.first);
  std::string text =
      "an integer from " + std::to_string(range.first) + " to " + std::to_string(range.last);
  return range.unit.empty() ? text : text + " (" + std::string(range.unit) + ")";
}

/// What templates leave for the user to fill in: <0000:00:00.0>.
bool has_placeholder(const std::string& text) {
  const std::size_t open = text.find('<');
  return open != std::string::npos && text.find('>', open) != std::string::npos;
}

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

std::string found(const Node& node, const std::string& accepts) {
  return "found " + describe(node) + "; accepts " + accepts;
}

}  // namespace

void Reader::root(const Node& node, UnknownKeys unknown, const std::function<void()>& body) {
  walk(node, {}, unknown, body);
}

const Node::Entry* Reader::entry(std::string_view name) const {
  const auto& entries = frame().node->entries;
  const auto match =
      std::find_if(entries.begin(), entries.end(), [&](const Node::Entry& candidate) {
        return candidate.key.kind == Node::Kind::SCALAR && candidate.key.text == name;
      });
  return match == entries.end() ? nullptr : &*match;
}

bool Reader::given(std::string_view name) const { return entry(name) != nullptr; }

bool Reader::bad(std::string_view name) const { return findings_.bad(path_of(name)); }

void Reader::problem(std::string_view name, const std::string& message) {
  findings_.error(name.empty() ? frame().path : path_of(name), message);
}

void Reader::ignore_rest() { frames_.back().unknown = UnknownKeys::IGNORED; }

void Reader::refused(std::string_view name, std::string_view message) {
  frames_.back().refused.push_back(name);
  if (const Node::Entry* found_entry = entry(name)) {
    findings_.key_error(path_of(name), found_entry->key.mark, std::string(message));
    findings_.spoil(path_of(name));
  }
}

const Node* Reader::find(Key key, const std::string& accepts) {
  frames_.back().known.push_back(key.name);
  const Node::Entry* match = entry(key.name);
  if (match == nullptr) {
    if (key.required) frames_.back().missing.push_back({key.name, accepts});
    return nullptr;
  }
  // A key without a value has no place of its own.
  findings_.place(path_of(key.name),
                  match->value.kind == Node::Kind::NONE ? match->key.mark : match->value.mark);
  return &match->value;
}

const std::string* Reader::scalar(const Node& node, const std::string& path,
                                  const std::string& accepts) {
  if (node.kind != Node::Kind::SCALAR) {
    findings_.error(path, found(node, accepts));
    return nullptr;
  }
  if (has_placeholder(node.text)) {
    findings_.error(path, "found " + describe(node) +
                              ", a placeholder that was never filled in; accepts " + accepts);
    return nullptr;
  }
  return &node.text;
}

std::optional<std::int64_t> Reader::to_integer(const Node& node, const std::string& path,
                                               const Range& range) {
  const std::string accepts = accepts_integer(range);
  const std::string* digits = scalar(node, path, accepts);
  if (digits == nullptr) return std::nullopt;
  std::int64_t value = 0;
  if (const std::string wrong = read_integer(*digits, value); !wrong.empty()) {
    findings_.error(path, "found " + describe(node) + ", " + wrong + "; accepts " + accepts);
    return std::nullopt;
  }
  if (value < range.first || value > range.last) {
    findings_.error(path, found(node, accepts));
    return std::nullopt;
  }
  return value;
}

void Reader::integer(Key key, std::int64_t& value, const Range& range) {
  if (const Node* node = find(key, accepts_integer(range))) {
    value = to_integer(*node, path_of(key.name), range).value_or(value);
  }
}

void Reader::one_of(Key key, int& value, Names names) {
  const auto parse = [&](std::string_view word) -> std::string {
    const Name* match = find_name(names, word);
    if (match == nullptr) return "unknown word";
    value = match->value;
    return {};
  };
  formatted(key, alternatives(names), parse, {});
}

void Reader::flag(Key key, bool& value) {
  const auto parse = [&](std::string_view word) -> std::string {
    const std::string lower = lower_case(std::string(word));
    for (const bool meaning : {false, true}) {
      const auto& spellings = BOOLEANS[meaning ? 1 : 0];
      if (std::find(std::begin(spellings), std::end(spellings), lower) != std::end(spellings)) {
        value = meaning;
        return {};
      }
    }
    return "not a truth value";
  };
  formatted(key, "true or false", parse, {});
}

void Reader::text(Key key, std::string& value) {
  const auto parse = [&](std::string_view word) -> std::string {
    if (word.empty()) return "an empty text";
    if (has_control_character(word)) return "a text with control characters";
    if (find_invalid_utf8(word) != std::string_view::npos) return "a text that is not UTF-8";
    value = word;
    return {};
  };
  formatted(key, "a text", parse, {});
}

void Reader::formatted(Key key, std::string_view accepts, const Parse& parse, const Print&) {
  const std::string accepted(accepts);
  const Node* node = find(key, accepted);
  if (node == nullptr) return;
  const std::string path = path_of(key.name);
  const std::string* word = scalar(*node, path, accepted);
  if (word == nullptr) return;
  if (const std::string wrong = parse(*word); !wrong.empty()) {
    findings_.error(path, "found " + describe(*node) + ", " + wrong + "; accepts " + accepted);
  }
}

const std::vector<Node>* Reader::items(Key key, const std::string& accepts) {
  static const std::vector<Node> no_items;
  const Node* node = find(key, accepts);
  if (node == nullptr) return nullptr;
  if (node->kind == Node::Kind::NONE) return &no_items;
  if (node->kind == Node::Kind::LIST) return &node->items;
  findings_.error(path_of(key.name), found(*node, accepts));
  return nullptr;
}

void Reader::texts(Key key, std::vector<std::string>& values) {
  const std::vector<Node>* nodes = items(key, "a list of texts");
  if (nodes == nullptr) return;
  values.clear();
  for (std::size_t i = 0; i < nodes->size(); ++i) {
    const std::string path = element(frame().path, key.name, i);
    findings_.place(path, (*nodes)[i].mark);
    const std::string* word = scalar((*nodes)[i], path, "a text");
    // The place is kept: rules name elements by their position.
    values.push_back(word == nullptr ? std::string() : *word);
  }
}

void Reader::words(Key key, std::vector<std::string>& values, Names names) {
  texts(key, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (find_name(names, values[i]) == nullptr) {
      findings_.error(element(frame().path, key.name, i),
                      "found " + quoted(values[i]) + "; accepts " + alternatives(names));
    }
  }
}

void Reader::integers(Key key, std::vector<std::int64_t>& values, const Range& range) {
  const std::vector<Node>* nodes = items(key, "a list of integers");
  if (nodes == nullptr) return;
  values.clear();
  for (std::size_t i = 0; i < nodes->size(); ++i) {
    const std::string path = element(frame().path, key.name, i);
    findings_.place(path, (*nodes)[i].mark);
    values.push_back(to_integer((*nodes)[i], path, range).value_or(range.first));
  }
}

void Reader::map(Key key, bool& present, const std::function<void()>& body) {
  static const Node empty_map;
  const Node* node = find(key, "a map");
  present = node != nullptr;
  if (!present) return;
  const std::string path = path_of(key.name);
  if (node->kind == Node::Kind::MAP) {
    walk(*node, path, UnknownKeys::REFUSED, body);
  } else if (node->kind == Node::Kind::NONE) {
    walk(empty_map, path, UnknownKeys::REFUSED, body);
  } else {
    findings_.error(path, found(*node, "a map"));
  }
}

void Reader::list_of(Key key, std::size_t, const std::function<void(std::size_t)>& body) {
  const std::vector<Node>* nodes = items(key, "a list of maps");
  if (nodes == nullptr) return;
  for (std::size_t i = 0; i < nodes->size(); ++i) {
    const Node& node = (*nodes)[i];
    const std::string path = element(frame().path, key.name, i);
    findings_.place(path, node.mark);
    // An element of the wrong kind is kept, empty, so that the others keep their positions.
    if (node.kind != Node::Kind::MAP) findings_.error(path, found(node, "a map"));
    walk(node, path, UnknownKeys::REFUSED, [&] { body(i); });
  }
}

void Reader::walk(const Node& node, std::string path, UnknownKeys unknown,
                  const std::function<void()>& body) {
  findings_.place(path, node.mark);
  frames_.push_back({&node, std::move(path), unknown});
  body();
  check_keys();
  frames_.pop_back();
}

void Reader::check_keys() {
  std::vector<std::string_view> misspelled;
  std::map<std::string_view, int> lines;
  for (const auto& [key, value] : frame().node->entries) {
    if (key.kind != Node::Kind::SCALAR) {
      if (frame().unknown == UnknownKeys::REFUSED) {
        findings_.key_error(frame().path, key.mark,
                            "found " + describe(key) + " as a key; accepts a text");
      }
      continue;
    }
    const auto& known = frame().known;
    const auto& refused_keys = frame().refused;
    const bool ours = std::find(known.begin(), known.end(), key.text) != known.end();
    if (!ours &&
        std::find(refused_keys.begin(), refused_keys.end(), key.text) == refused_keys.end()) {
      report_unknown(key, misspelled);
    }
    const auto [first, is_new] = lines.emplace(key.text, key.mark.line);
    if (ours && !is_new) {
      findings_.key_error(
          path_of(key.text), key.mark,
          "the key is given twice, first in line " + std::to_string(first->second) + "; keep one");
    }
  }
  for (const auto& [name, accepts] : frame().missing) {
    const std::string path = path_of(name);
    if (std::find(misspelled.begin(), misspelled.end(), name) != misspelled.end()) {
      findings_.spoil(path);
    } else {
      findings_.error(path, "required, but not given; accepts " + accepts);
    }
  }
}

void Reader::report_unknown(const Node& key, std::vector<std::string_view>& misspelled) {
  constexpr std::size_t LONGEST_KEY = 64;
  if (frame().unknown == UnknownKeys::IGNORED || frame().known.empty()) return;
  const std::string_view found_key = std::string_view(key.text).substr(0, LONGEST_KEY);
  std::string_view nearest;
  std::size_t best = LONGEST_KEY * 2;
  for (const std::string_view candidate : frame().known) {
    const std::size_t distance = edit_distance(found_key, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  // A slip in three letters makes it likely that this key was meant.
  const bool likely = 3 * best <= nearest.size() + 3 && !given(nearest);
  const std::string name = quoted(key.text);
  const std::string path = path_of(name.substr(1, name.size() - 2));
  if (frame().unknown == UnknownKeys::FOREIGN) {
    if (likely) {
      findings_.warning_at(path, key.mark,
                           "is left alone; if it is ours, it is '" + std::string(nearest) + "'");
    }
    return;
  }
  std::string accepted;
  for (const std::string_view candidate : frame().known) {
    accepted += (accepted.empty() ? "" : ", ") + std::string(candidate);
  }
  if (likely) misspelled.push_back(nearest);
  findings_.key_error(
      path, key.mark,
      "unknown key " + name + ", nearest is '" + std::string(nearest) + "'; accepts " + accepted);
}

}  // namespace daqiri::config
