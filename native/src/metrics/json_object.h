/// Text of a JSON object (RFC 8259), key by key.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace daqiri {

class JsonObject {
 public:
  /// `value` is JSON already.
  void json(std::string_view key, std::string_view value) {
    entries_.push_back(quoted(key).append(": ").append(value));
  }
  void text(std::string_view key, std::string_view value) { json(key, quoted(value)); }
  void flag(std::string_view key, bool value) { json(key, value ? "true" : "false"); }
  void number(std::string_view key, std::integral auto value) { json(key, std::to_string(value)); }

  /// One key per line.
  [[nodiscard]] std::string lines() const { return "{\n  " + joined(",\n  ") + "\n}\n"; }
  /// On one line.
  [[nodiscard]] std::string line() const { return "{" + joined(", ") + "}"; }

  static std::string quoted(std::string_view text) {
    constexpr std::string_view HEX = "0123456789abcdef";
    std::string out = "\"";
    for (const char c : text) {
      const auto code = static_cast<unsigned char>(c);
      if (c == '\n') {
        out += "\\n";
      } else if (code < 0x20) {
        out.append("\\u00").append(1, HEX[code / 16]).append(1, HEX[code % 16]);
      } else {
        out.append(c == '"' || c == '\\' ? "\\" : "").append(1, c);
      }
    }
    return out + '"';
  }

 private:
  [[nodiscard]] std::string joined(std::string_view separator) const {
    std::string all;
    for (const std::string& entry : entries_)
      all.append(all.empty() ? std::string_view() : separator).append(entry);
    return all;
  }

  std::vector<std::string> entries_;
};

}  // namespace daqiri
