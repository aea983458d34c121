/// Averages blocks of pixels to make smaller frames for displays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace daqiri::memory {

/// What frames are of, and how they lie: images of rows of pixels, one behind the other.
struct Pixels {
  /// BFLOAT: bf16.
  enum class Kind : std::uint8_t { UNSIGNED, SIGNED, FLOAT, BFLOAT };
  Kind kind{Kind::UNSIGNED};
  /// Of a pixel.
  std::uint32_t bytes{1};
  std::uint64_t images{0};
  std::uint32_t rows{0};
  std::uint32_t columns{0};

  /// Pixels of the longest side of blocks.
  [[nodiscard]] std::uint32_t most_binning() const noexcept {
    return std::max(std::min(rows, columns), 1U);
  }
  /// Of a frame: blocks of `binning` x `binning` pixels, without rows and columns that fill none.
  [[nodiscard]] std::uint64_t means(std::uint32_t binning) const noexcept {
    return images * (rows / binning) * (columns / binning);
  }
};

/// The mean of each block of a frame, in the order of the blocks, each pixel added in the order of
/// rows: of integers the exact sum, of floats that of doubles, divided as a double and rounded to
/// float. What is not a number is 0x7FC00000. `binning`: up to most_binning(). The frame needs no
/// alignment.
void block_means(const Pixels& pixels, const std::byte* frame, std::uint32_t binning,
                 float* means) noexcept;

}  // namespace daqiri::memory
