#include "metrics/json_object.h"

#include <array>
#include <cstdio>

namespace daqiri {

std::string JsonObject::quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code.data();
    } else {
      out += c;
    }
  }
  return out + '"';
}

// No value has a line break in it: `quoted` writes them as codes.

std::string JsonObject::lines() const {
  std::string out = "{\n";
  bool begins = true;
  for (const char c : body_) {
    if (begins) out += "  ";
    begins = c == '\n';
    out += c;
  }
  return out + "\n}\n";
}

std::string JsonObject::line() const {
  std::string out = "{";
  for (const char c : body_) out += c == '\n' ? ' ' : c;
  return out + "}";
}

}  // namespace daqiri
