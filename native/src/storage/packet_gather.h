/// Copies of many packets at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace daqiri {

/// Copy `n` packets, which begin at `offsets` in `data`, to rows of `width` bytes at `out`; what is
/// left of a row becomes 0. No packet is longer than `width`.
void gather_rows(const std::uint8_t* data, const std::int64_t* offsets,
                 const std::uint32_t* lengths, std::size_t n, std::uint8_t* out,
                 std::size_t width) noexcept;

}  // namespace daqiri
