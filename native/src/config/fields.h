/// The keys of a configuration, stated once (schema_*.cpp) and walked to read, write or list them.
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/limits.h"
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

  template <class E>
    requires std::is_enum_v<E>
  void choice(Key key, E& value, Names names) {
    int number = static_cast<int>(value);
    one_of(key, number, names);
    value = static_cast<E>(number);
  }

  /// A text that is one of `names`; not written when empty.
  void word(Key key, std::string& value, Names names);

  /// Empty: all is well, else what is wrong with the text.
  using Parse = std::function<std::string(std::string_view)>;
  /// The text of a value; empty: do not write the key.
  using Print = std::function<std::string()>;

  virtual void integer(Key key, std::int64_t& value, const Range& range) = 0;
  virtual void one_of(Key key, int& value, Names names) = 0;
  virtual void flag(Key key, bool& value) = 0;
  /// Any text but an empty one.
  virtual void text(Key key, std::string& value) = 0;
  virtual void formatted(Key key, std::string_view accepts, const Parse& parse,
                         const Print& print) = 0;
  virtual void texts(Key key, std::vector<std::string>& values) = 0;
  virtual void words(Key key, std::vector<std::string>& values, Names names) = 0;
  virtual void integers(Key key, std::vector<std::int64_t>& values, const Range& range) = 0;

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

  /// The key is not one any more; its presence is an error with this message.
  virtual void refused(std::string_view name, std::string_view message) = 0;

  // What follows does something only while reading.

  /// The map has the key.
  [[nodiscard]] virtual bool given(std::string_view) const { return false; }
  /// The value of the key was found wrong.
  [[nodiscard]] virtual bool bad(std::string_view) const { return false; }
  /// Report an error at the key, or at the map when the name is empty.
  virtual void problem(std::string_view, const std::string&) {}
  /// Which keys belong here is unknown: accept all.
  virtual void ignore_rest() {}

 protected:
  /// Calls `body` for the elements from 0 up to the number there is, one past `size` to add one.
  virtual void list_of(Key key, std::size_t size, const std::function<void(std::size_t)>& body) = 0;

 private:
  Walk walk_;
};

}  // namespace daqiri::config
