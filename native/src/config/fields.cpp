// Operations of the schema on a key: read its value from a document, or write it to one.
#include <algorithm>
#include <map>
#include <numeric>
#include <regex>

#include "config/schema.h"

namespace daqiri::config {
namespace {

using Severity = ConfigProblem::Severity;

constexpr Name BOOLEANS[] = {{"false", false}, {"no", false}, {"off", false}, {"n", false},
                             {"true", true},   {"yes", true}, {"on", true},   {"y", true}};

bool is_plain(std::string_view text) {
  return text.find_first_not_of(
             "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_") ==
         std::string_view::npos;
}

std::string describe(const Node& node) {
  if (node.kind == Node::Kind::SCALAR) return quoted(node.text);
  if (node.kind == Node::Kind::NONE) return "nothing";
  return node.kind == Node::Kind::LIST ? "a list" : "a map";
}

/// `or_none`: a key without a value counts as an empty map or list.
bool expect(const Node& node, Node::Kind kind, const Place& place, std::string_view accepts,
            bool or_none = false) {
  const bool good = node.kind == kind || (or_none && node.kind == Node::Kind::NONE);
  if (!good) place.error("found ", describe(node), "; accepts ", accepts);
  return good;
}

std::string wrong_text(std::string_view text) {
  if (text.empty()) return "an empty text";
  if (std::ranges::any_of(text,
                          [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }))
    return "a text with control characters";
  return find_invalid_utf8(text) == std::string_view::npos ? "" : "a text that is not UTF-8";
}

constexpr std::string_view ACCEPTED_NAME = "a text of up to 200 bytes that is not '.' or '..'";

std::string wrong_name(std::string_view name) {
  constexpr std::size_t LONGEST = 200;
  if (name == "." || name == "..") return "which is a folder to file systems";
  return name.size() > LONGEST ? "a long text" : wrong_text(name);
}

/// Whether other YAML readers would parse the unquoted text as a number.
bool is_number(std::string_view text) {
  static const std::regex form("[-+]?[0-9][0-9_]*([.][0-9_]*)?([eE][-+]?[0-9]+)?");
  return text.size() < 64 && std::regex_match(text.begin(), text.end(), form);
}

template <class Read>
void read_scalar(const Node& node, const Place& place, std::string_view accepts, const Read& read) {
  if (!expect(node, Node::Kind::SCALAR, place, accepts)) return;
  // Placeholders of templates, such as <0000:00:00.0>.
  const bool placeholder = node.text.find('>', node.text.find('<')) != std::string::npos;
  const std::string wrong = placeholder ? "a placeholder that was not replaced" : read(node.text);
  if (!wrong.empty()) place.error("found ", quoted(node.text), ", ", wrong, "; accepts ", accepts);
}

/// Smallest number of single-character insertions, removals and substitutions that change one text
/// into the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

bool same(const Node& one, const Node& other) {
  const auto same_entries = [](const Node::Entry& a, const Node::Entry& b) {
    return a.key.text == b.key.text && same(a.value, b.value);
  };
  return one.kind == other.kind && one.text == other.text &&
         std::ranges::equal(one.items, other.items, same) &&
         std::ranges::equal(one.entries, other.entries, same_entries);
}

bool among(const std::vector<std::string_view>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

Node Fields::run(const Body& body) {
  if (reading()) place_.stands_at(source_->mark);
  body(*this);
  if (reading()) check_keys();
  return std::move(written_);
}

void Fields::flag(Key key, bool& value) {
  const auto read = [&](std::string_view word) -> std::string {
    const Name* match = find_name(BOOLEANS, lower(word));
    if (match == nullptr) return "not a truth value";
    value = match->value != 0;
    return {};
  };
  scalar(key, "true or false", read, Node(Node::Kind::SCALAR, text_of(BOOLEANS, value)));
}

void Fields::text(Key key, std::string& value, bool of_digits) {
  const Node::Entry* given = entry_of(key.name);
  const bool number = !of_digits && given != nullptr && !given->value.quoted &&
                      given->value.kind == Node::Kind::SCALAR && is_number(given->value.text);
  const auto read = [&](std::string_view word) -> std::string {
    if (number)
      return "a number, because YAML readers parse some text without quotes as a number, such as "
             "0000:03:00.0; put the text in quotes";
    std::string wrong = wrong_text(word);
    if (wrong.empty()) value = word;
    return wrong;
  };
  scalar(key, "a text", read, Node(Node::Kind::SCALAR, value, true));
}

void Fields::name(Key key, std::string& value) {
  const auto read = [&](std::string_view word) {
    std::string wrong = wrong_name(word);
    if (wrong.empty()) value = word;
    return wrong;
  };
  scalar(key, ACCEPTED_NAME, read, Node(Node::Kind::SCALAR, value, true));
}

void Fields::formatted(Key key, std::string_view accepts, const Read& read,
                       const std::string& text) {
  key.written = !text.empty();
  scalar(key, accepts, read, Node(Node::Kind::SCALAR, text, !is_plain(text)));
}

void Fields::word(Key key, std::string& value, Names names) {
  const auto read = [&](std::string_view text) {
    if (find_name(names, text) != nullptr) value = text;
    return wrong_word(names, text);
  };
  formatted(key, alternatives(names), read, value);
}

void Fields::texts(Key key, std::vector<std::string>& values, Names names) {
  const auto read = [&](std::string_view text) {
    return names.empty() ? std::string() : wrong_word(names, text);
  };
  scalars(key, "a list of texts", names.empty() ? "a text" : alternatives(names), read, values,
          true);
}

void Fields::formed_each(Key key, std::vector<std::string>& values, const Form<std::string>& form) {
  const Node::Entry* entry = reading() ? entry_of(key.name) : nullptr;
  if (entry != nullptr && entry->value.kind == Node::Kind::SCALAR) {
    values.resize(1);
    return formed(key, values.front(), form);
  }
  const auto read = [&](std::string_view text) {
    std::string value;
    return form.read(text, value);
  };
  scalars(key, concat("a list of: ", form.accepts), form.accepts, read, values, false);
}

void Fields::scalar(Key key, std::string_view accepts, const Read& read, Node written) {
  if (!reading()) {
    add(key, std::move(written));
  } else if (const Node* node = find(key, accepts)) {
    read_scalar(*node, at(key.name), accepts, read);
  }
}

void Fields::scalars(Key key, std::string_view accepts, std::string_view each, const Read& read,
                     std::vector<std::string>& texts, bool quoted) {
  if (!reading()) {
    Node list(Node::Kind::LIST);
    for (const std::string& text : texts)
      list.items.push_back(Node(Node::Kind::SCALAR, text, quoted));
    add(key, std::move(list));
  } else if (const std::vector<Node>* nodes = elements(key, accepts)) {
    texts.clear();
    for (const Node& node : *nodes) {
      read_scalar(node, at(key.name)[texts.size()], each, read);
      texts.push_back(node.text);
    }
  }
}

bool Fields::map(Key key, const Body& body) {
  if (!reading()) {
    add(key, Fields(place_, listing_).run(body));
    return key.written;
  }
  const Node* node = find(key, "a map");
  if (node != nullptr && expect(*node, Node::Kind::MAP, at(key.name), "a map", true))
    Fields(*node, at(key.name), UnknownKeys::REFUSED).run(body);
  return node != nullptr;
}

void Fields::list_of(Key key, std::size_t size,
                     const std::function<void(Fields&, std::size_t)>& body) {
  if (!reading()) {
    Node list(Node::Kind::LIST);
    for (std::size_t i = 0; i < (listing() ? 1 : size); ++i)
      list.items.push_back(Fields(place_, listing_).run([&](Fields& fields) { body(fields, i); }));
    add(key, std::move(list));
  } else if (const std::vector<Node>* nodes = elements(key, "a list of maps")) {
    for (std::size_t i = 0; i < nodes->size(); ++i) {
      // An element of the wrong kind is kept as an empty one, so that the others keep their
      // positions.
      const Place place = at(key.name)[i];
      expect((*nodes)[i], Node::Kind::MAP, place, "a map");
      Fields((*nodes)[i], place, UnknownKeys::REFUSED).run([&](Fields& fields) {
        body(fields, i);
      });
    }
  }
}

void Fields::named_of(Key key, const std::vector<std::string>& names, const Form<std::string>& form,
                      const std::function<void(Fields&, std::size_t, const std::string&)>& body) {
  if (!reading()) {
    Node map(Node::Kind::MAP);
    const auto write = [&](std::size_t i, const std::string& name) {
      map.entries.push_back(
          {Node(Node::Kind::SCALAR, name),
           Fields(place_, listing_).run([&](Fields& fields) { body(fields, i, name); })});
    };
    if (listing()) write(0, "name");
    for (std::size_t i = 0; i < (listing() ? 0 : names.size()); ++i) write(i, names[i]);
    return add(key, std::move(map));
  }
  const Node* node = find(key, "a map");
  if (node == nullptr || !expect(*node, Node::Kind::MAP, at(key.name), "a map", true)) return;
  std::map<std::string_view, int> lines;
  for (const auto& [name, value] : node->entries) {
    std::string given;
    const std::string wrong =
        name.kind == Node::Kind::SCALAR ? form.read(name.text, given) : "not a text";
    if (!wrong.empty()) {
      at(key.name).about_key(Severity::ERROR, name.mark, "found ", describe(name), " as a name, ",
                             wrong, "; accepts ", form.accepts);
      at(key.name).spoil();
      continue;
    }
    const Place place = at(key.name)[given];
    const auto [first, is_new] = lines.emplace(name.text, name.mark.line);
    if (!is_new) {
      // Configurations that were built in code have no lines.
      place.about_key(Severity::ERROR, name.mark, "the key is given twice",
                      first->second > 0 ? concat(", first in line ", first->second) : "",
                      "; keep one");
      continue;
    }
    place.stands_at(value.kind == Node::Kind::NONE ? name.mark : value.mark);
    expect(value, Node::Kind::MAP, place, "a map");
    Fields(value, place, UnknownKeys::REFUSED).run([&](Fields& fields) {
      body(fields, lines.size() - 1, given);
    });
  }
}

void Fields::variants(Key key, std::span<const std::string_view> fixed,
                      std::span<const std::string> names, const VariantBody& body) {
  if (!reading()) {
    Node map(Node::Kind::MAP);
    for (std::size_t i = 0; i < names.size() && !listing(); ++i) {
      const Node all =
          Fields(place_, false).run([&](Fields& fields) { body(fields, i, names[i]); });
      Node differing(Node::Kind::MAP);
      for (const Node::Entry& entry : all.entries) {
        const Node::Entry* here = written_.entry(entry.key.text);
        if (std::ranges::find(fixed, entry.key.text) == fixed.end() &&
            (here == nullptr || !same(here->value, entry.value)))
          differing.entries.push_back(entry);
      }
      // What is not written because it is the default.
      const Node defaults =
          Fields(place_, true).run([&](Fields& fields) { body(fields, i, names[i]); });
      for (const Node::Entry& here : written_.entries) {
        const Node::Entry* unset = defaults.entry(here.key.text);
        if (unset == nullptr || all.entry(here.key.text) != nullptr ||
            std::ranges::find(fixed, here.key.text) != fixed.end())
          continue;
        Node::Entry entry = *unset;
        entry.value.items.clear();
        differing.entries.push_back(std::move(entry));
      }
      map.entries.push_back({Node(Node::Kind::SCALAR, names[i], true), std::move(differing)});
    }
    return add(key, std::move(map));
  }
  constexpr std::string_view ACCEPTS = "a map (names, each with a map of the keys that differ)";
  const Node* node = find(key, ACCEPTS);
  if (node == nullptr || !expect(*node, Node::Kind::MAP, at(key.name), ACCEPTS, true)) return;
  // What a variant takes over is reported once.
  if (place_.bad_within() || !missing_.empty()) return at(key.name).spoil();
  std::size_t index = 0;
  std::vector<std::string_view> seen;
  for (const Node::Entry& entry : node->entries) {
    const std::string wrong =
        entry.key.kind == Node::Kind::SCALAR ? wrong_name(entry.key.text) : "not a text";
    const Place place = at(key.name)[entry.key.text];
    if (!wrong.empty()) {
      at(key.name).about_key(Severity::ERROR, entry.key.mark, "found ", describe(entry.key),
                             " as a name, ", wrong, "; accepts ", ACCEPTED_NAME);
      at(key.name).spoil();
    } else if (among(seen, entry.key.text)) {
      place.about_key(Severity::ERROR, entry.key.mark, "the name is given twice; keep one");
    } else {
      seen.emplace_back(entry.key.text);
      read_variant(key.name, entry, place, fixed,
                   [&](Fields& fields) { body(fields, index, entry.key.text); });
      ++index;
    }
  }
}

void Fields::read_variant(std::string_view variants_key, const Node::Entry& given,
                          const Place& place, std::span<const std::string_view> fixed,
                          const Body& body) {
  place.stands_at(given.value.kind == Node::Kind::NONE ? given.key.mark : given.value.mark);
  if (!expect(given.value, Node::Kind::MAP, place, "a map of the keys that differ", true)) return;
  Node whole(Node::Kind::MAP);
  whole.mark = given.value.mark;
  for (const Node::Entry& entry : given.value.entries) {
    const auto& [key, value] = entry;
    if (key.kind != Node::Kind::SCALAR || std::ranges::find(fixed, key.text) == fixed.end()) {
      whole.entries.push_back(entry);
      continue;
    }
    const Place at = place[key.text];
    at.about_key(Severity::ERROR, key.mark,
                 "is the same in all modes of a plan; accepts it in the plan only, or another plan "
                 "under reorder_configs");
    at.spoil();
  }
  for (const Node::Entry& entry : source_->entries) {
    const std::string& name = entry.key.text;
    if (name == variants_key) continue;
    const bool differs =
        given.value.entry(name) != nullptr && std::ranges::find(fixed, name) == fixed.end();
    if (among(known_, name) && !differs) whole.entries.push_back(entry);
  }
  Fields(whole, place, UnknownKeys::REFUSED).run(body);
}

void Fields::refused(std::string_view name, const std::string& message) {
  refused_.push_back(name);
  if (const Node::Entry* entry = entry_of(name)) {
    at(name).about_key(Severity::ERROR, entry->key.mark, message);
    at(name).spoil();
  }
}

void Fields::problem(std::string_view name, const std::string& message) {
  if (reading()) (name.empty() ? place_ : at(name)).error(message);
}

void Fields::warning(std::string_view name, const std::string& message) {
  if (reading() && !bad(name)) at(name).warning(message);
}

Key Fields::or_alias(Key key, std::string_view alias) {
  if (!given(alias)) return key;
  if (!given(key.name)) return {alias, key.required, key.written};
  known_.push_back(alias);
  problem(alias, concat("found together with ", key.name, ", which means the same; keep one"));
  return key;
}

void Fields::add(Key key, Node value) {
  if (key.written || listing())
    written_.entries.push_back({Node(Node::Kind::SCALAR, std::string(key.name)), std::move(value)});
}

const Node::Entry* Fields::entry_of(std::string_view name) const {
  return reading() ? source_->entry(name) : nullptr;
}

/// Returns the value of a key and adds the key to the known ones; if it is missing, returns null
/// and adds it to the missing ones.
const Node* Fields::find(Key key, std::string_view accepts) {
  known_.push_back(key.name);
  const Node::Entry* match = entry_of(key.name);
  if (match == nullptr) {
    if (key.required) missing_.emplace_back(key.name, accepts);
    return nullptr;
  }
  // A key without a value has no value position.
  const bool none = match->value.kind == Node::Kind::NONE;
  at(key.name).stands_at(none ? match->key.mark : match->value.mark);
  return &match->value;
}

/// Returns the elements of a list and stores their positions; null if there is no list.
const std::vector<Node>* Fields::elements(Key key, std::string_view accepts) {
  const Node* node = find(key, accepts);
  if (node == nullptr || !expect(*node, Node::Kind::LIST, at(key.name), accepts, true))
    return nullptr;
  for (std::size_t i = 0; i < node->items.size(); ++i)
    at(key.name)[i].stands_at(node->items[i].mark);
  return &node->items;
}

void Fields::check_keys() {
  std::map<std::string_view, int> lines;
  for (const auto& [key, value] : source_->entries) {
    if (key.kind != Node::Kind::SCALAR) {
      if (unknown_ == UnknownKeys::REFUSED)
        place_.about_key(Severity::ERROR, key.mark, "found ", describe(key),
                         " as a key; accepts a text");
      continue;
    }
    const bool ours = among(known_, key.text);
    if (!ours && !among(refused_, key.text)) report_unknown(key);
    const auto [first, is_new] = lines.emplace(key.text, key.mark.line);
    if (ours && !is_new)
      at(key.text).about_key(Severity::ERROR, key.mark, "the key is given twice, first in line ",
                             first->second, "; keep one");
  }
  for (const auto& [name, accepts] : missing_) {
    if (among(misspelled_, name)) at(name).spoil();
    at(name).error("required, but not given; accepts ", accepts);
  }
}

void Fields::report_unknown(const Node& key) {
  constexpr std::size_t LONGEST_KEY = 64;
  if (unknown_ == UnknownKeys::IGNORED) return;
  std::string_view nearest;
  std::string accepted;
  std::size_t best = LONGEST_KEY * 2;
  for (const std::string_view candidate : known_) {
    const std::size_t distance = edit_distance(key.text.substr(0, LONGEST_KEY), candidate);
    if (distance < best) nearest = candidate;
    best = std::min(best, distance);
    accepted += concat(accepted.empty() ? "" : ", ", candidate);
  }
  // Up to about one typo in three letters, this key was probably meant.
  const bool likely = 3 * best <= nearest.size() + 3 && !given(nearest);
  const std::string name = quoted(key.text);
  const Place place = at(name.substr(1, name.size() - 2));
  if (unknown_ == UnknownKeys::REFUSED) {
    if (likely) misspelled_.push_back(nearest);
    place.about_key(Severity::ERROR, key.mark, "unknown key ", name, ", nearest is '", nearest,
                    "'; accepts ", accepted);
  } else if (likely) {
    place.about_key(Severity::WARNING, key.mark, "is ignored; if it is meant for daqiri, write '",
                    nearest, "'");
  }
}

}  // namespace daqiri::config
