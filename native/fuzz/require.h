/// Assertions of fuzz targets.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace daqiri::fuzz {

/// Ends the process if an invariant is violated; the fuzzer then saves the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace daqiri::fuzz
