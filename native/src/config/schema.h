/// The keys of a configuration, stated once (schema.cpp, schema_flows.cpp) and walked to read,
/// write or list them.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/findings.h"
#include "config/formats.h"
#include "config/names.h"

namespace daqiri::config {

struct Key {
  std::string_view name;
  bool required;
};
constexpr Key required(std::string_view name) { return {name, true}; }
constexpr Key optional(std::string_view name) { return {name, false}; }

/// One walk over the schema. The schema calls a function per key of the map it is in; what happens
/// to the value is the walker's business.
class Fields {
 public:
  enum class Walk { READ, WRITE, LIST };
  /// Takes a text; returns what is wrong with it, or an empty text.
  using Read = std::function<std::string(std::string_view)>;

  explicit Fields(Walk walk) : walk_(walk) {}
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;
  virtual ~Fields() = default;

  [[nodiscard]] bool reading() const noexcept { return walk_ == Walk::READ; }
  [[nodiscard]] bool writing() const noexcept { return walk_ == Walk::WRITE; }
  /// Keys that depend on a value are all walked then.
  [[nodiscard]] bool listing() const noexcept { return walk_ == Walk::LIST; }

  template <std::integral T>
  void number(Key key, T& value, const Range& range) {
    auto wide = static_cast<std::int64_t>(value);
    integer(key, wide, range);
    value = static_cast<T>(wide);
  }
  template <std::integral T>
  void numbers(Key key, std::vector<T>& values, const Range& range) {
    std::vector<std::string> texts;
    for (const T value : values) texts.push_back(std::to_string(value));
    integers(key, texts, range);
    values.clear();
    for (const std::string& text : texts) values.push_back(static_cast<T>(std::stoll(text)));
  }
  template <class E>
    requires std::is_enum_v<E>
  void choice(Key key, E& value, Names names) {
    int number = static_cast<int>(value);
    one_of(key, number, names);
    value = static_cast<E>(number);
  }
  void flag(Key key, bool& value);
  /// Any text but an empty one.
  void text(Key key, std::string& value);
  template <class Value>
  void formed(Key key, Value& value, const Form<Value>& form) {
    const auto read = [&](std::string_view text) { return form.read(text, value); };
    formatted(key, form.accepts, read, form.write(value));
  }
  /// A text that is one of `names`; the key is left out when it is empty.
  void word(Key key, std::string& value, Names names);
  void words(Key key, std::vector<std::string>& values, Names names) {
    scalars(key, "a list of texts", alternatives(names), one_of(names), values, true);
  }
  void texts(Key key, std::vector<std::string>& values) {
    scalars(key, "a list of texts", "a text", [](auto) { return std::string(); }, values, true);
  }

  /// A map. `present`: read: the key is there; write: write it.
  virtual void map(Key key, bool& present, const std::function<void()>& body) = 0;
  void map(Key key, const std::function<void()>& body) {
    bool present = true;
    map(key, present, body);
  }
  /// A list of maps; `body` walks the keys of one element.
  template <class T, class Body>
  void list(Key key, std::vector<T>& values, Body body) {
    list_of(key, values.size(), [&](std::size_t index) {
      if (index == values.size()) values.emplace_back();
      body(values[index]);
    });
  }

  // What follows does something only while reading.

  /// The key is not one any more; its presence is an error with this message.
  virtual void refused(std::string_view, std::string_view) {}
  /// The map has the key.
  [[nodiscard]] virtual bool given(std::string_view) const { return false; }
  /// The value of the key was found wrong.
  [[nodiscard]] virtual bool bad(std::string_view) const { return false; }
  /// Report an error at the key, or at the map when the name is empty.
  virtual void problem(std::string_view, const std::string&) {}
  /// Which keys belong here is unknown: accept all.
  virtual void ignore_rest() {}

 protected:
  /// `written`: none: the key is left out.
  virtual void scalar(Key key, std::string_view accepts, const Read& read,
                      const std::optional<Node>& written) = 0;
  /// A list of scalars as texts, of which `read` says what is wrong with each, empty for what is
  /// none: all keep their positions.
  virtual void scalars(Key key, std::string_view accepts, std::string_view each, const Read& read,
                       std::vector<std::string>& texts, bool quoted) = 0;
  /// Calls `body` for the elements from 0 up to the number there is, one past `size` to add one.
  virtual void list_of(Key key, std::size_t size, const std::function<void(std::size_t)>& body) = 0;

 private:
  void integer(Key key, std::int64_t& value, const Range& range);
  /// Leaves only digits in `texts`.
  void integers(Key key, std::vector<std::string>& texts, const Range& range);
  void one_of(Key key, int& value, Names names);
  /// `text`: as it is written; empty: the key is left out.
  void formatted(Key key, std::string_view accepts, const Read& read, const std::string& text);

  /// Reads a word into `number`, if that is given.
  static Read one_of(Names names, int* number = nullptr);

  Walk walk_;
};

/// Keys of a map that the schema does not have.
enum class UnknownKeys {
  /// Errors.
  REFUSED,
  /// Others' keys, never errors; one that looks like a misspelling of ours is a warning.
  FOREIGN,
  IGNORED,
};

/// The whole configuration.
void walk_config(Fields& fields, NetworkConfig& config);

void walk_rx_flow(Fields& fields, FlowConfig& flow);
void walk_tx_flow(Fields& fields, TxFlowConfig& flow);

/// Reads a document into structs; everything that has the wrong form is reported.
void read_config(const Node& root, UnknownKeys unknown, Findings& findings, NetworkConfig& config);

/// The structs as a document, every default included.
Node write_config(const NetworkConfig& config);

/// A document with every key there is, at its default; lists of maps have one element.
Node default_config();

/// Paths of all keys, lists as `interfaces[].rx.queues[].id`.
std::vector<std::string> known_keys();

}  // namespace daqiri::config
