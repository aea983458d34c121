/// What a fuzz target takes for granted.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace daqiri::fuzz {

/// Ends the process, which saves the input, when something that always holds does not.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace daqiri::fuzz
