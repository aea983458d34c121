// Means of blocks of pixels.
#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "memory/block_means.h"

using daqiri::memory::Pixels;
using Kind = Pixels::Kind;

namespace {

template <typename T>
std::vector<float> means(Kind kind, std::vector<T> frame, std::uint64_t images, std::uint32_t rows,
                         std::uint32_t columns, std::uint32_t binning) {
  REQUIRE(frame.size() == images * rows * columns);
  const Pixels pixels{
      .kind = kind, .bytes = sizeof(T), .images = images, .rows = rows, .columns = columns};
  // A frame at an unaligned address, with the exact size.
  std::vector<std::byte> bytes(1 + frame.size() * sizeof(T));
  std::memcpy(bytes.data() + 1, frame.data(), bytes.size() - 1);
  std::vector<float> made(pixels.means(binning));
  daqiri::memory::block_means(pixels, bytes.data() + 1, binning, made.data());
  return made;
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

}  // namespace

TEST_CASE("rows and columns that fill no block are left out", "[means]") {
  const std::vector<std::uint8_t> frame{1, 2,  3,  4,  99,  //
                                        5, 6,  7,  9,  99,  //
                                        9, 10, 11, 12, 99};
  CHECK(means(Kind::UNSIGNED, frame, 1, 3, 5, 2) == std::vector{3.5F, 5.75F});
  CHECK(means(Kind::UNSIGNED, frame, 1, 3, 5, 3) == std::vector{6.0F});
}

TEST_CASE("each image of a frame has its blocks", "[means]") {
  const std::vector<std::int16_t> frame{-1, -2, -3, -5, 10, 20, 30, 40, 0, 0, 0, 1};
  CHECK(means(Kind::SIGNED, frame, 3, 2, 2, 2) == std::vector{-2.75F, 25.0F, 0.25F});
}

TEST_CASE("sums of integers are exact", "[means]") {
  using Limits = std::numeric_limits<std::int64_t>;
  CHECK(means<std::uint32_t>(Kind::UNSIGNED, {~0U, ~0U, ~0U, 3}, 1, 2, 2, 2) ==
        std::vector{3221225472.0F});
  CHECK(means<std::int32_t>(Kind::SIGNED, {INT32_MIN, INT32_MAX, 7, -6}, 1, 2, 2, 2) ==
        std::vector{0.0F});
  CHECK(means<std::int64_t>(Kind::SIGNED, {Limits::min(), Limits::max(), 9, -4}, 1, 2, 2, 2) ==
        std::vector{1.0F});
  CHECK(means<std::uint64_t>(Kind::UNSIGNED, {~0ULL, ~0ULL, ~0ULL, ~0ULL}, 1, 2, 2, 2) ==
        std::vector{18446744073709551616.0F});
}

TEST_CASE("floats are added as doubles, in the order of rows", "[means]") {
  // In double precision, adding 1 to 2^60 has no effect.
  CHECK(means<double>(Kind::FLOAT, {0x1p60, 1, -0x1p60, 1}, 1, 2, 2, 2) == std::vector{0.25F});
  CHECK(means<double>(Kind::FLOAT, {0x1p60, -0x1p60, 1, 1}, 1, 2, 2, 2) == std::vector{0.5F});
  CHECK(means<float>(Kind::FLOAT, {0x1p100F, 1, -0x1p100F, 3}, 1, 2, 2, 2) == std::vector{0.75F});
}

TEST_CASE("halves and bf16 have the values of their bits", "[means]") {
  const auto half = [](std::uint16_t bits) {
    return means<std::uint16_t>(Kind::FLOAT, {bits, bits, bits, bits}, 1, 2, 2, 2)[0];
  };
  CHECK(half(0x3C00) == 1.0F);
  CHECK(half(0xC580) == -5.5F);
  CHECK(half(0x7BFF) == 65504.0F);
  CHECK(half(0x0001) == 0x1p-24F);
  CHECK(half(0x83FF) == -1023 * 0x1p-24F);
  // Sums start at positive zero.
  CHECK(bits_of(half(0x8000)) == 0);
  CHECK(half(0xFC00) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(half(0x7C01)));
  CHECK(means<std::uint16_t>(Kind::BFLOAT, {0x3F80, 0xC0B0, 0x4049, 0x0000}, 1, 2, 2, 2) ==
        std::vector{(1.0F - 5.5F + 3.140625F) / 4});
}

TEST_CASE("what is not a number has the same bits everywhere", "[means]") {
  constexpr float INFINITE = std::numeric_limits<float>::infinity();
  const float quiet = std::bit_cast<float>(0xFFC12345U);
  const auto made = means<float>(Kind::FLOAT, {INFINITE, -INFINITE, quiet, 1}, 1, 1, 4, 1);
  CHECK(made[0] == INFINITE);
  CHECK(bits_of(made[2]) == 0x7FC00000U);
  CHECK(bits_of(means<float>(Kind::FLOAT, {INFINITE, -INFINITE, 1, 1}, 1, 2, 2, 2)[0]) ==
        0x7FC00000U);
  // Exceeds the largest float.
  CHECK(means<double>(Kind::FLOAT, {1e300, 1e300, 1e300, 1e300}, 1, 2, 2, 2) ==
        std::vector{INFINITE});
}

TEST_CASE("blocks are as large as frames at most", "[means]") {
  CHECK(Pixels{.rows = 8, .columns = 32}.most_binning() == 8);
  CHECK(Pixels{}.most_binning() == 1);
}
