/// Numeric arguments of a benchmark program.
#pragma once

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace bench {

/// Parses all of `text` as a number; otherwise ends the program.
template <typename Number>
Number number(const char* text) {
  Number value{};
  const char* end = text + std::strlen(text);
  const auto read = std::from_chars(text, end, value);
  if (read.ec != std::errc{} || read.ptr != end) {
    std::fprintf(stderr, "argument '%s' is no number of the kind that is needed\n", text);
    std::exit(2);
  }
  return value;
}

/// Argument `i`, or `otherwise` if it is missing.
template <typename Number>
Number number_or(int argc, char** argv, int i, Number otherwise) {
  return i < argc ? number<Number>(argv[i]) : otherwise;
}

}  // namespace bench
