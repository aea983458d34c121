/// Time that bytes take at a rate.
#pragma once

#include <cstdint>

namespace daqiri {

/// Time for `bytes` at `mbps`, ns; `rest`: remainder of the division, kept between calls.
constexpr std::uint64_t wire_ns(std::uint64_t bytes, std::uint32_t mbps, std::uint64_t& rest) {
  const std::uint64_t ns = bytes * 8000U + rest;
  rest = ns % mbps;
  return ns / mbps;
}

}  // namespace daqiri
