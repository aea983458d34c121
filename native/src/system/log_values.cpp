// Log lines of the application: patterns with values.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <new>

#include "daqiri/logging.hpp"
#include "system/log.h"

namespace daqiri::detail {

namespace {

/// `[0][width][.precision][type]`.
struct Spec {
  bool zeros{false};
  int width{0};
  int precision{-1};
  char type{'\0'};

  explicit Spec(const std::string& text) {
    constexpr int WIDEST = 256;
    const char* at = text.data();
    const char* const end = at + text.size();
    zeros = at != end && *at == '0';
    at = std::from_chars(at, end, width).ptr;
    if (at != end && *at == '.') at = std::from_chars(at + 1, end, precision).ptr;
    if (at != end) type = *at;
    width = std::min(width, WIDEST);
    precision = std::min(precision, WIDEST);
  }
};

}  // namespace

std::string LogValue::format(const std::string& text) const {
  const Spec spec(text);
  std::string digits = text_;
  char buffer[512];
  char* const end = buffer + sizeof buffer;
  if (kind_ == Kind::REAL) {
    const bool fixed = spec.type == 'f' && std::abs(real_) < 1e200;
    const auto form = fixed              ? std::chars_format::fixed
                      : spec.type == 'e' ? std::chars_format::scientific
                                         : std::chars_format::general;
    const auto result =
        spec.precision < 0 && !fixed
            ? std::to_chars(buffer, end, real_)
            : std::to_chars(buffer, end, real_, form, spec.precision < 0 ? 6 : spec.precision);
    digits.assign(buffer, result.ptr);
  } else if (kind_ != Kind::TEXT) {
    const int base = spec.type == 'x' || spec.type == 'X' ? 16 : 10;
    const bool negative = kind_ == Kind::SIGNED && static_cast<std::int64_t>(integer_) < 0;
    const auto result = std::to_chars(buffer, end, negative ? 0 - integer_ : integer_, base);
    digits.assign(negative ? "-" : "").append(buffer, result.ptr);
    if (spec.type == 'X') {
      for (char& c : digits) c = c >= 'a' ? static_cast<char>(c - 'a' + 'A') : c;
    }
  }
  const auto width = static_cast<std::size_t>(std::max(spec.width, 0));
  if (digits.size() >= width) return digits;
  if (kind_ == Kind::TEXT) return digits.append(width - digits.size(), ' ');
  const bool sign = spec.zeros && digits.front() == '-';
  return digits.insert(sign ? 1 : 0, width - digits.size(), spec.zeros ? '0' : ' ');
}

void write_log(LogLevel level, const char* pattern,
               std::initializer_list<LogValue> values) noexcept {
  try {
    std::string line;
    const LogValue* next = values.begin();
    for (const char* at = pattern; *at != '\0'; ++at) {
      const char* const close = *at == '{' ? std::strchr(at, '}') : nullptr;
      if ((*at == '{' || *at == '}') && at[1] == *at) {
        line += *at++;
      } else if (close != nullptr && next != values.end()) {
        const std::string inside(at + 1, close);
        const std::size_t colon = inside.find(':');
        line += (next++)->format(colon == std::string::npos ? "" : inside.substr(colon + 1));
        at = close;
      } else {
        line += *at;
      }
    }
    log_as_it_is(level, line);
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace daqiri::detail
