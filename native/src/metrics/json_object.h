/// Text of a JSON object (RFC 8259), key by key.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace daqiri {

class JsonObject {
 public:
  /// `value` is JSON already.
  void json(std::string_view key, std::string_view value) {
    if (!body_.empty()) body_ += ",\n";
    body_ += quoted(key) + ": ";
    body_ += value;
  }
  void text(std::string_view key, std::string_view value) { json(key, quoted(value)); }
  void flag(std::string_view key, bool value) { json(key, value ? "true" : "false"); }
  void number(std::string_view key, std::integral auto value) { json(key, std::to_string(value)); }

  /// A key a line.
  [[nodiscard]] std::string lines() const;
  /// All in one line.
  [[nodiscard]] std::string line() const;

  static std::string quoted(std::string_view text);

 private:
  std::string body_;
};

}  // namespace daqiri
