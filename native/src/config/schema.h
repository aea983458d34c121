/// The keys of a configuration, stated once (schema.cpp) and walked to read, write or list them.
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/findings.h"
#include "config/formats.h"

namespace daqiri::config {

struct Key {
  std::string_view name;
  bool required;
  /// False: it is left out of what is written.
  bool written{true};
};
constexpr Key required(std::string_view name) { return {name, true}; }
constexpr Key optional(std::string_view name) { return {name, false}; }

/// A program left the default, where that is no choice.
template <class E>
constexpr bool never_set(E value) {
  if constexpr (requires { E::INVALID; }) return value == E::INVALID;
  if constexpr (requires { E::NONE; }) return value == E::NONE;
  return false;
}

/// Keys of a map that the schema does not have.
enum class UnknownKeys {
  /// Errors.
  REFUSED,
  /// Others' keys, never errors; one that looks like a misspelling of ours is a warning.
  FOREIGN,
  IGNORED,
};

/// A walk over the keys of a map, for each of which the schema calls a function. Reading takes the
/// value from the document, and reports what has the wrong form; writing adds it to a document.
class Fields {
 public:
  using Body = std::function<void(Fields&)>;

  /// Reads `map`.
  Fields(const Node& map, Place place, UnknownKeys unknown)
      : source_(&map), place_(std::move(place)), unknown_(unknown) {}
  /// Writes, and has nothing to say of a place; `listing`: every key there is, lists with one
  /// element.
  Fields(Place nowhere, bool listing) : place_(std::move(nowhere)), listing_(listing) {}

  /// Calls `body`; the result is what it wrote.
  Node run(const Body& body);

  [[nodiscard]] bool reading() const noexcept { return source_ != nullptr; }
  [[nodiscard]] bool writing() const noexcept { return !reading() && !listing_; }
  /// Keys that depend on a value are all walked then.
  [[nodiscard]] bool listing() const noexcept { return listing_; }

  template <std::integral T>
  void number(Key key, T& value, const Range& range) {
    const auto read = [&](std::string_view text) {
      auto number = static_cast<std::int64_t>(value);
      std::string wrong = read_integer(text, range, number);
      value = static_cast<T>(number);
      return wrong;
    };
    scalar(key, accepts_integer(range), read, Node(Node::Kind::SCALAR, as_text(value)));
  }
  /// What is no number of the range counts as its first, so that all keep their positions.
  template <std::integral T>
  void numbers(Key key, std::vector<T>& values, const Range& range) {
    std::vector<std::string> texts(values.size());
    std::ranges::transform(values, texts.begin(), as_text<T>);
    std::int64_t number = 0;
    const auto read = [&](std::string_view text) { return read_integer(text, range, number); };
    scalars(key, "a list of integers", accepts_integer(range), read, texts, false);
    values.clear();
    for (const std::string& text : texts)
      values.push_back(static_cast<T>(read(text).empty() ? number : range.first));
  }
  /// `any_case`: letters of either case are the same.
  template <class E>
  void choice(Key key, E& value, Names names, bool any_case = false) {
    const auto read = [&](std::string_view given) {
      const std::string text = any_case ? lower(given) : std::string(given);
      if (const Name* match = find_name(names, text)) value = static_cast<E>(match->value);
      return wrong_word(names, text);
    };
    const std::string text = text_of(names, value);
    key.written = !key.required || !never_set(value);
    // Readers of YAML 1.1 take off for false.
    scalar(key, alternatives(names), read,
           Node(Node::Kind::SCALAR, text, text.empty() || text == "off"));
  }
  void flag(Key key, bool& value);
  /// Any text but an empty one. `of_digits`: one that looks like a number needs no quotes.
  void text(Key key, std::string& value, bool of_digits = true);
  template <class Value>
  void formed(Key key, Value& value, const Form<Value>& form) {
    const auto read = [&](std::string_view text) { return form.read(text, value); };
    formatted(key, form.accepts, read, form.write(value));
  }
  /// A text that is one of `names`; the key is left out when it is empty.
  void word(Key key, std::string& value, Names names);
  /// A list of texts; `names`: the accepted ones, when not all are.
  void texts(Key key, std::vector<std::string>& values, Names names = {});
  /// Texts of a form: a list, or one by itself.
  void formed_each(Key key, std::vector<std::string>& values, const Form<std::string>& form);

  /// A map whose keys `body` walks. Returns whether it is there.
  bool map(Key key, const Body& body);
  /// A map whose keys `walk` knows; left out when it is optional, not `given`, and the default.
  template <class T, class Walk>
  bool map(Key key, T& value, Walk walk, bool given = false) {
    key.written = key.required || given || value != T{};
    return map(key, [&](Fields& fields) { walk(fields, value); });
  }
  /// A list of maps; `walk` knows the keys of an element.
  template <class T, class Walk>
  void list(Key key, std::vector<T>& values, Walk walk) {
    list_of(key, values.size(), [&](Fields& fields, std::size_t index) {
      if (index == values.size()) values.emplace_back();
      walk(fields, values[index]);
    });
  }

  // What follows does something only while reading.

  /// The key by whichever of its two names it has.
  Key or_alias(Key key, std::string_view alias);
  /// The key is not one any more; its presence is an error with this message.
  void refused(std::string_view name, const std::string& message);
  /// The map has the key.
  [[nodiscard]] bool given(std::string_view name) const { return entry_of(name) != nullptr; }
  /// The value of the key was found wrong.
  [[nodiscard]] bool bad(std::string_view name) const { return reading() && at(name).bad(); }
  /// Report an error at the key, or at the map when the name is empty.
  void problem(std::string_view name, const std::string& message);
  void warning(std::string_view name, const std::string& message);
  /// Which keys belong here is unknown: accept all.
  void ignore_rest() { unknown_ = UnknownKeys::IGNORED; }

 private:
  /// Takes a text; returns what is wrong with it, or an empty text.
  using Read = std::function<std::string(std::string_view)>;
  /// `text`: as it is written; empty: the key is left out.
  void formatted(Key key, std::string_view accepts, const Read& read, const std::string& text);
  void scalar(Key key, std::string_view accepts, const Read& read, Node written);
  /// A list of scalars as texts, of which `read` says what is wrong with each, empty for what is
  /// none: all keep their positions.
  void scalars(Key key, std::string_view accepts, std::string_view each, const Read& read,
               std::vector<std::string>& texts, bool quoted);
  /// Calls `body` for the elements from 0 up to the number there is, one past `size` to add one.
  void list_of(Key key, std::size_t size, const std::function<void(Fields&, std::size_t)>& body);

  void add(Key key, Node value);
  [[nodiscard]] Place at(std::string_view name) const { return place_[name]; }
  [[nodiscard]] const Node::Entry* entry_of(std::string_view name) const;
  const Node* find(Key key, std::string_view accepts);
  const std::vector<Node>* elements(Key key, std::string_view accepts);
  void check_keys();
  void report_unknown(const Node& key);

  /// The map that is read; null: the walk writes `written_`.
  const Node* source_{nullptr};
  Place place_;
  UnknownKeys unknown_{UnknownKeys::REFUSED};
  std::vector<std::string_view> known_, refused_, misspelled_;
  /// Required keys that are not there, and what they accept.
  std::vector<std::pair<std::string_view, std::string>> missing_;
  bool listing_{false};
  Node written_{Node::Kind::MAP};
};

inline constexpr Range BYTES{0, UINT32_MAX, "bytes"};

// Walks over the keys of an entry of `flows`, `flex_items` and `reorder_configs`.
void walk_flow(Fields& fields, FlowConfig& flow, bool rx);
void walk_flex_item(Fields& fields, FlexItemConfig& item);
void walk_reorder(Fields& fields, ReorderConfig& reorder);

/// Reads a document into structs; everything that has the wrong form is reported.
void read_config(const Node& root, UnknownKeys unknown, Findings& findings, NetworkConfig& config);

/// The structs as a document, every default included.
Node write_config(const NetworkConfig& config);

/// A document with every key there is, at its default; lists of maps have one element.
Node default_config();

}  // namespace daqiri::config
