/// Writing lines to the library's log: standard error, or the collector that the process has set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <sstream>
#include <string>
#include <type_traits>

#include "daqiri/enums.h"

namespace daqiri {

/// \defgroup log Log lines
/// \{

/// Set the lowest level that is written, for the process. `daqiri_init` sets it from `log_level`.
void set_log_level(LogLevel level) noexcept;
/// Return the lowest level that is written.
LogLevel::Level get_log_level() noexcept;

/// \}

namespace detail {

/// A value in a log line.
class LogValue {
 public:
  template <class Value>
  explicit LogValue(const Value& value) {
    if constexpr (std::is_same_v<Value, bool>) {
      text_ = value ? "true" : "false";
    } else if constexpr (std::is_enum_v<Value>) {
      set(static_cast<std::underlying_type_t<Value>>(value));
    } else if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, char>) {
      set(value);
    } else {
      std::ostringstream out;
      out << value;
      text_ = out.str();
    }
  }
  /// `spec`: the text after the colon of `{:...}`. Supported are zero fill, width, precision and
  /// the types d, x, X, f, e and g.
  [[nodiscard]] std::string format(const std::string& spec) const;

 private:
  template <class Number>
  void set(Number number) {
    if constexpr (std::is_floating_point_v<Number>) {
      kind_ = Kind::REAL;
      real_ = static_cast<double>(number);
    } else if constexpr (std::is_signed_v<Number>) {
      kind_ = Kind::SIGNED;
      integer_ = static_cast<std::uint64_t>(static_cast<std::int64_t>(number));
    } else {
      kind_ = Kind::UNSIGNED;
      integer_ = static_cast<std::uint64_t>(number);
    }
  }

  enum class Kind : std::uint8_t { TEXT, REAL, SIGNED, UNSIGNED };
  Kind kind_{Kind::TEXT};
  std::string text_;
  std::uint64_t integer_{0};
  double real_{0.0};
};

/// Each `{}` of the pattern is replaced by the next value; `{{` and `}}` are braces.
void write_log(LogLevel level, const char* pattern,
               std::initializer_list<LogValue> values) noexcept;

template <class... Values>
void log_line(LogLevel level, const std::string& pattern, const Values&... values) {
  if (level >= get_log_level()) write_log(level, pattern.c_str(), {LogValue(values)...});
}

}  // namespace detail
}  // namespace daqiri

// Log a line with values: DAQIRI_LOG_INFO("port {} has {} queues", port, queues).
#define DAQIRI_LOG_TRACE(...) ::daqiri::detail::log_line(::daqiri::LogLevel::TRACE, __VA_ARGS__)
#define DAQIRI_LOG_DEBUG(...) ::daqiri::detail::log_line(::daqiri::LogLevel::DEBUG, __VA_ARGS__)
#define DAQIRI_LOG_INFO(...) ::daqiri::detail::log_line(::daqiri::LogLevel::INFO, __VA_ARGS__)
#define DAQIRI_LOG_WARN(...) ::daqiri::detail::log_line(::daqiri::LogLevel::WARN, __VA_ARGS__)
#define DAQIRI_LOG_ERROR(...) ::daqiri::detail::log_line(::daqiri::LogLevel::ERROR, __VA_ARGS__)
#define DAQIRI_LOG_CRITICAL(...) \
  ::daqiri::detail::log_line(::daqiri::LogLevel::CRITICAL, __VA_ARGS__)
