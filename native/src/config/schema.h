/// The keys of a configuration, defined once (schema.cpp) and used to read, write or list them.
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <optional>
#include <span>
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
  /// False: not written.
  bool written{true};
};
constexpr Key required(std::string_view name) { return {name, true}; }
constexpr Key optional(std::string_view name) { return {name, false}; }

/// Whether a value without a default was left unset by a program.
template <class E>
constexpr bool never_set(E value) {
  if constexpr (requires { E::INVALID; }) return value == E::INVALID;
  if constexpr (requires { E::NONE; }) return value == E::NONE;
  return false;
}

/// How to handle keys that the schema does not contain.
enum class UnknownKeys {
  /// Report errors.
  REFUSED,
  /// Keys of other programs, never errors; one that looks like a misspelled key causes a warning.
  FOREIGN,
  IGNORED,
};

/// Processes the keys of a map; the schema calls a function for each key. Reading takes the value
/// from the document and reports wrong forms; writing adds the value to a document.
class Fields {
 public:
  using Body = std::function<void(Fields&)>;

  /// Read `map`.
  Fields(const Node& map, Place place, UnknownKeys unknown)
      : source_(&map), place_(std::move(place)), unknown_(unknown) {}
  /// Write, without reports; `listing`: all keys, and lists with one element.
  Fields(Place nowhere, bool listing) : place_(std::move(nowhere)), listing_(listing) {}

  /// Calls `body`; returns the document that it wrote.
  Node run(const Body& body);

  [[nodiscard]] bool reading() const noexcept { return source_ != nullptr; }
  [[nodiscard]] bool writing() const noexcept { return !reading() && !listing_; }
  /// Whether all keys are listed, including those that depend on other values.
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
  /// Invalid numbers are replaced by the first of the range, so that the others keep their
  /// positions.
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
  /// A list of numbers, or a single one.
  template <std::integral T>
  void number_each(Key key, std::vector<T>& values, const Range& range) {
    const Node::Entry* entry = reading() ? entry_of(key.name) : nullptr;
    const bool single = reading() ? entry != nullptr && entry->value.kind == Node::Kind::SCALAR
                                  : values.size() == 1;
    if (!single) return numbers(key, values, range);
    values.resize(1);
    number(key, values.front(), range);
  }
  /// `any_case`: ignore the case of letters.
  template <class E>
  void choice(Key key, E& value, Names names, bool any_case = false) {
    const auto read = [&](std::string_view given) {
      const std::string text = any_case ? lower(given) : std::string(given);
      if (const Name* match = find_name(names, text)) value = static_cast<E>(match->value);
      return wrong_word(names, text);
    };
    const std::string text = text_of(names, value);
    key.written = !key.required || !never_set(value);
    // YAML 1.1 readers parse an unquoted `off` as false.
    scalar(key, alternatives(names), read,
           Node(Node::Kind::SCALAR, text, text.empty() || text == "off"));
  }
  void flag(Key key, bool& value);
  /// Any text except an empty one. `of_digits`: text that looks like a number needs no quotes.
  void text(Key key, std::string& value, bool of_digits = true);
  /// A text that may become the name of a file, or of a part of one.
  void name(Key key, std::string& value);
  template <class Value>
  void formed(Key key, Value& value, const Form<Value>& form) {
    const auto read = [&](std::string_view text) { return form.read(text, value); };
    formatted(key, form.accepts, read, form.write(value));
  }
  /// A text that is one of `names`; omitted if empty.
  void word(Key key, std::string& value, Names names);
  /// A list of texts; `names`: the accepted ones, unless all are.
  void texts(Key key, std::vector<std::string>& values, Names names = {});
  /// Texts with a format: a list, or a single one.
  void formed_each(Key key, std::vector<std::string>& values, const Form<std::string>& form);

  /// A map whose keys `body` processes. Returns whether it exists.
  bool map(Key key, const Body& body);
  /// A map whose keys `walk` processes; omitted if it is optional, not `given`, and the default.
  template <class T, class Walk>
  bool map(Key key, T& value, Walk walk, bool given = false) {
    key.written = key.required || given || value != T{};
    return map(key, [&](Fields& fields) { walk(fields, value); });
  }
  /// A list of maps; `walk` processes the keys of an element.
  template <class T, class Walk>
  void list(Key key, std::vector<T>& values, Walk walk) {
    list_of(key, values.size(), [&](Fields& fields, std::size_t index) {
      if (index == values.size()) values.emplace_back();
      walk(fields, values[index]);
    });
  }

  /// A map from names to maps; `name` is the member with the name, `walk` processes the keys of a
  /// map. A wrong name is reported and left out with its map.
  template <class T, class Walk>
  void named(Key key, std::vector<T>& values, std::string T::* name, const Form<std::string>& form,
             Walk walk) {
    std::vector<std::string> names(values.size());
    std::ranges::transform(values, names.begin(), name);
    named_of(key, names, form, [&](Fields& fields, std::size_t index, const std::string& given) {
      if (index == values.size()) values.emplace_back();
      values[index].*name = given;
      walk(fields, values[index]);
    });
  }

  /// A map of variants of this map, by name: each has the keys whose values differ from those here,
  /// except `fixed` ones. `body` processes all keys of one. Call it after all other keys.
  using VariantBody = std::function<void(Fields&, std::size_t, const std::string&)>;
  void variants(Key key, std::span<const std::string_view> fixed,
                std::span<const std::string> names, const VariantBody& body);

  // The following functions have an effect only while reading.

  /// The key under the one of its two names that the map contains.
  Key or_alias(Key key, std::string_view alias);
  /// A former key: its presence is an error with this message.
  void refused(std::string_view name, const std::string& message);
  /// Whether the map contains the key.
  [[nodiscard]] bool given(std::string_view name) const { return entry_of(name) != nullptr; }
  /// Whether the value of the key was found wrong.
  [[nodiscard]] bool bad(std::string_view name) const { return reading() && at(name).bad(); }
  /// Report an error at the key, or at the map if the name is empty.
  void problem(std::string_view name, const std::string& message);
  void warning(std::string_view name, const std::string& message);
  /// Accept all further keys, because it is unknown which ones are valid.
  void ignore_rest() { unknown_ = UnknownKeys::IGNORED; }

 private:
  /// Reads a text; returns what is wrong with it, or an empty text.
  using Read = std::function<std::string(std::string_view)>;
  /// `text`: the written form; empty: the key is omitted.
  void formatted(Key key, std::string_view accepts, const Read& read, const std::string& text);
  void scalar(Key key, std::string_view accepts, const Read& read, Node written);
  /// A list of scalars as texts; `read` returns what is wrong with each. Elements that are no
  /// scalars become empty texts, so that all keep their positions.
  void scalars(Key key, std::string_view accepts, std::string_view each, const Read& read,
               std::vector<std::string>& texts, bool quoted);
  /// Calls `body` for all elements, starting with 0; index `size` means that one is added.
  void list_of(Key key, std::size_t size, const std::function<void(Fields&, std::size_t)>& body);
  /// As `list_of`, with the name of each element.
  void named_of(Key key, const std::vector<std::string>& names, const Form<std::string>& form,
                const std::function<void(Fields&, std::size_t, const std::string&)>& body);

  void read_variant(std::string_view variants_key, const Node::Entry& given, const Place& place,
                    std::span<const std::string_view> fixed, const Body& body);

  void add(Key key, Node value);
  [[nodiscard]] Place at(std::string_view name) const { return place_[name]; }
  [[nodiscard]] const Node::Entry* entry_of(std::string_view name) const;
  const Node* find(Key key, std::string_view accepts);
  const std::vector<Node>* elements(Key key, std::string_view accepts);
  void check_keys();
  void report_unknown(const Node& key);

  /// The map to read; null: write to `written_`.
  const Node* source_{nullptr};
  Place place_;
  UnknownKeys unknown_{UnknownKeys::REFUSED};
  std::vector<std::string_view> known_, refused_, misspelled_;
  /// Missing required keys, and what they accept.
  std::vector<std::pair<std::string_view, std::string>> missing_;
  bool listing_{false};
  Node written_{Node::Kind::MAP};
};

inline constexpr Range BYTES{0, UINT32_MAX, "bytes"};

// Keys of an entry of `flows`, `flex_items` and `reorder_configs`.
void walk_flow(Fields& fields, FlowConfig& flow, bool rx);
void walk_flex_item(Fields& fields, FlexItemConfig& item);
/// `joint`: a plan of the whole configuration, not of an interface.
void walk_reorder(Fields& fields, ReorderConfig& reorder, bool joint);

/// Reads a document into structs; reports all wrong forms.
void read_config(const Node& root, UnknownKeys unknown, Findings& findings, NetworkConfig& config);

/// The structs as a document, including all defaults.
Node write_config(const NetworkConfig& config);

/// A document with all keys, with their defaults; lists of maps have one element.
Node default_config();

}  // namespace daqiri::config
