/// Averages blocks of pixels to make smaller frames for displays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace daqiri::memory {

/// Type and layout of the pixels of frames: images of rows of pixels, one after another.
struct Pixels {
  /// BFLOAT: bf16.
  enum class Kind : std::uint8_t { UNSIGNED, SIGNED, FLOAT, BFLOAT };
  Kind kind{Kind::UNSIGNED};
  /// Bytes per pixel.
  std::uint32_t bytes{1};
  std::uint64_t images{0};
  std::uint32_t rows{0};
  std::uint32_t columns{0};

  /// Longest side of a block, in pixels.
  [[nodiscard]] std::uint32_t most_binning() const noexcept {
    return std::max(std::min(rows, columns), 1U);
  }
  /// Number of means of a frame, for blocks of `binning` x `binning` pixels; incomplete blocks at
  /// the edges are omitted.
  [[nodiscard]] std::uint64_t means(std::uint32_t binning) const noexcept {
    return images * (rows / binning) * (columns / binning);
  }
};

/// Compute the mean of each block of a frame, in the order of blocks, adding pixels in the order of
/// rows. Sums of integers are exact; sums of floats are doubles. The quotient is a double, rounded
/// to float. NaN is 0x7FC00000. `binning`: up to most_binning(). The frame needs no alignment.
void block_means(const Pixels& pixels, const std::byte* frame, std::uint32_t binning,
                 float* means) noexcept;

}  // namespace daqiri::memory
