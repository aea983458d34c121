#include "system/text.h"

#include <bit>
#include <cstdint>

namespace daqiri {

std::string quoted(std::string_view text) {
  constexpr std::size_t LONGEST = 80;
  constexpr std::string_view HEX = "0123456789abcdef";
  const bool cut = text.size() > LONGEST;
  if (cut) {
    std::size_t size = LONGEST;
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) --size;
    text = text.substr(0, size);
  }
  const bool valid = find_invalid_utf8(text) == std::string_view::npos;
  std::string result = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F || (byte > 0x7F && !valid)) {
      result += {'\\', 'x', HEX[byte >> 4U], HEX[byte & 0xFU]};
    } else {
      result += c;
    }
  }
  return result + (cut ? "...'" : "'");
}

std::size_t find_invalid_utf8(std::string_view text) noexcept {
  // An encoding with more bytes than necessary is invalid.
  constexpr std::uint32_t SMALLEST[] = {0, 0, 0x80, 0x800, 0x10000};
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const auto length = static_cast<std::size_t>(lead < 0x80 ? 1 : std::countl_one(lead));
    const bool has_length = lead < 0x80 || (length >= 2 && length <= 4);
    if (!has_length || length > text.size() - i) return i;
    std::uint32_t code = lead < 0x80 ? lead : lead & (0x7FU >> length);
    for (std::size_t j = 1; j < length; ++j) {
      const auto next = static_cast<unsigned char>(text[i + j]);
      if ((next & 0xC0U) != 0x80U) return i;
      code = code << 6U | (next & 0x3FU);
    }
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    if (code < SMALLEST[length] || code > 0x10FFFF || surrogate) return i;
    i += length;
  }
  return std::string_view::npos;
}

}  // namespace daqiri
