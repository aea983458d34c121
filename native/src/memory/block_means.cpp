#include "memory/block_means.h"

#include <bit>
#include <cstring>
#include <type_traits>

namespace daqiri::memory {

namespace {

/// The bits of floats for which C++ has no type.
struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};

double value_of(Half half) noexcept {
  const std::uint32_t exponent = half.bits & 0x7C00U;
  const std::uint32_t rest = (half.bits & 0x7FFFU) << 13U;
  // The exponent of a float is greater by 112; for infinity and NaN by 224.
  const float size = exponent == 0         ? static_cast<float>(half.bits & 0x3FFU) * 0x1p-24F
                     : exponent == 0x7C00U ? std::bit_cast<float>(rest + (224U << 23U))
                                           : std::bit_cast<float>(rest + (112U << 23U));
  return (half.bits & 0x8000U) == 0 ? size : -size;
}
double value_of(Bfloat value) noexcept {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16U);
}
template <typename T>
T value_of(T value) noexcept {
  return value;
}

/// Blocks have less than 2^32 bytes, so that sums of integers do not overflow.
template <typename Pixel>
class Sum {
 public:
  void add(Pixel pixel) noexcept { sum_ += value_of(pixel); }
  [[nodiscard]] double total() const noexcept { return static_cast<double>(sum_); }

 private:
  std::conditional_t<std::is_integral_v<Pixel>, std::int64_t, double> sum_{0};
};

/// Adds upper and lower halves separately.
template <typename Pixel>
class LongSum {
 public:
  void add(Pixel pixel) noexcept {
    upper_ += static_cast<std::int64_t>(pixel >> 32);
    lower_ += static_cast<std::uint32_t>(pixel);
  }
  [[nodiscard]] double total() const noexcept {
    return static_cast<double>(upper_) * 0x1p32 + static_cast<double>(lower_);
  }

 private:
  std::int64_t upper_{0};
  std::uint64_t lower_{0};
};
template <>
class Sum<std::int64_t> : public LongSum<std::int64_t> {};
template <>
class Sum<std::uint64_t> : public LongSum<std::uint64_t> {};

float mean_of(double total, double count) noexcept {
  const auto mean = static_cast<float>(total / count);
  // GPUs have a different bit pattern for NaN.
  return mean == mean ? mean : std::bit_cast<float>(0x7FC00000U);
}

template <typename Pixel>
void means_of(const Pixels& pixels, const std::byte* frame, std::uint32_t binning,
              float* means) noexcept {
  const std::size_t line = std::size_t{pixels.columns} * sizeof(Pixel);
  const double count = static_cast<double>(binning) * binning;
  for (std::uint64_t image = 0; image < pixels.images; ++image, frame += pixels.rows * line) {
    for (std::uint32_t row = 0; row < pixels.rows / binning; ++row) {
      for (std::uint32_t column = 0; column < pixels.columns / binning; ++column) {
        const std::byte* from = frame + std::size_t{row} * binning * line +
                                std::size_t{column} * binning * sizeof(Pixel);
        Sum<Pixel> sum;
        for (std::uint32_t y = 0; y < binning; ++y, from += line) {
          for (std::uint32_t x = 0; x < binning; ++x) {
            Pixel pixel;
            std::memcpy(&pixel, from + x * sizeof(Pixel), sizeof(Pixel));
            sum.add(pixel);
          }
        }
        *means++ = mean_of(sum.total(), count);
      }
    }
  }
}

using Means = void (*)(const Pixels&, const std::byte*, std::uint32_t, float*) noexcept;

template <typename One, typename Two, typename Four, typename Eight>
Means of_size(std::uint32_t bytes) noexcept {
  if (bytes == 1) return means_of<One>;
  if (bytes == 2) return means_of<Two>;
  return bytes == 4 ? Means{means_of<Four>} : Means{means_of<Eight>};
}

Means means_for(const Pixels& pixels) noexcept {
  switch (pixels.kind) {
    case Pixels::Kind::SIGNED:
      return of_size<std::int8_t, std::int16_t, std::int32_t, std::int64_t>(pixels.bytes);
    case Pixels::Kind::FLOAT:
      return of_size<Half, Half, float, double>(pixels.bytes);
    case Pixels::Kind::BFLOAT:
      return means_of<Bfloat>;
    case Pixels::Kind::UNSIGNED:
      break;
  }
  return of_size<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>(pixels.bytes);
}

}  // namespace

void block_means(const Pixels& pixels, const std::byte* frame, std::uint32_t binning,
                 float* means) noexcept {
  means_for(pixels)(pixels, frame, binning, means);
}

}  // namespace daqiri::memory
