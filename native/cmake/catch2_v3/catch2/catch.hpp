// The tests are written for Catch2 2 (Debian 12). With Catch2 3, which newer systems have, this
// header stands in for the old one and gives the few names that moved.
#pragma once

#include <catch2/catch_all.hpp>

#define Contains ContainsSubstring

namespace Catch {
using Matchers::ContainsSubstring;
using Matchers::EndsWith;
using Matchers::Equals;
using Matchers::StartsWith;
}  // namespace Catch
