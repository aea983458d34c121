/// Loops that convert elements of whole bytes. Compiled for each instruction set by convert.cpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace daqiri::reorder {

/// The bits of an fp16 or bf16 element.
template <int ExponentBits, int FractionBits>
struct Small {
  std::uint16_t bits;
};
using Fp16 = Small<5, 10>;
using Bf16 = Small<8, 7>;

template <typename T>
struct IsSmall : std::false_type {};
template <int E, int F>
struct IsSmall<Small<E, F>> : std::true_type {};

/// IEEE 754 binary32 or binary64 to a smaller format: to nearest, ties to even; too large values
/// become infinity. For integer values only: their magnitudes are 0 or at least 1, so the result is
/// never subnormal.
template <int E, int F, typename Float>
[[gnu::always_inline]] inline Small<E, F> rounded(Float value, Small<E, F>*) noexcept {
  using Bits = std::conditional_t<sizeof(Float) == 4, std::uint32_t, std::uint64_t>;
  constexpr int WIDE_F = std::numeric_limits<Float>::digits - 1;
  constexpr int WIDE_BIAS = std::numeric_limits<Float>::max_exponent - 1;
  constexpr int CUT = WIDE_F - F;
  constexpr Bits INFINITE = ((Bits{1} << E) - 1) << F;
  constexpr Bits REBIAS = static_cast<Bits>(WIDE_BIAS - ((1 << (E - 1)) - 1)) << F;
  const auto bits = std::bit_cast<Bits>(value);
  constexpr int SIGN = sizeof(Float) * 8 - 1;
  const auto sign = static_cast<std::uint16_t>((bits >> SIGN) << 15U);
  const Bits magnitude = bits & ~(Bits{1} << SIGN);
  const Bits cut = (magnitude + (Bits{1} << (CUT - 1)) - 1 + ((magnitude >> CUT) & 1U)) >> CUT;
  Bits small = cut - REBIAS;
  small = small > INFINITE ? INFINITE : small;
  small = magnitude == 0 ? 0 : small;
  return {static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(small))};
}

/// binary16 to binary32, exactly. A NaN keeps its sign and its fraction, and is quiet.
[[gnu::always_inline]] inline float widened(std::uint16_t half) noexcept {
  // Difference of the biases; floats are never subnormal here, because programs may flush those.
  constexpr std::uint32_t REBIAS = (127U - 15U) << 23U;
  constexpr std::uint32_t NORMAL = 0x0400;
  constexpr std::uint32_t INFINITE = 0x7C00;
  const std::uint32_t magnitude = half & 0x7FFFU;
  const std::uint32_t shifted = (magnitude << 13U) + REBIAS;
  const float small = std::bit_cast<float>(shifted + (1U << 23U)) - 0x1p-14F;
  // With a mask: compilers would make a branch, and no vectors.
  const std::uint32_t is_small = magnitude < NORMAL ? UINT32_MAX : 0U;
  std::uint32_t bits = (std::bit_cast<std::uint32_t>(small) & is_small) | (shifted & ~is_small);
  bits += magnitude < INFINITE ? 0U : REBIAS;
  bits |= magnitude > INFINITE ? 0x00400000U : 0U;
  return std::bit_cast<float>(bits | (half & 0x8000U) << 16U);
}

/// As a double. Of 64 bits, what a double cannot hold makes its last bit odd, so that a smaller
/// type that it is rounded to is the nearest of the integer, too.
template <typename In>
[[gnu::always_inline]] inline double odd_double(In value) noexcept {
  if constexpr (sizeof(In) == 8) {
    constexpr std::uint64_t REST = 0x7FF;
    const auto bits = static_cast<std::uint64_t>(value);
    const std::uint64_t sign = std::is_signed_v<In> ? bits >> 63U : 0;
    const std::uint64_t magnitude = sign != 0 ? 0 - bits : bits;
    const std::uint64_t odd = (bits & ~REST) | ((bits & REST) != 0 ? REST + 1 : 0);
    return static_cast<double>(static_cast<In>(magnitude >> 53U != 0 ? odd : bits));
  } else {
    return static_cast<double>(value);
  }
}

template <typename Out, typename In>
[[gnu::always_inline]] inline Out converted(In value) noexcept {
  if constexpr (IsSmall<Out>::value) {
    // Via a wide type that holds the value exactly, so that it is rounded once.
    if constexpr (sizeof(In) < 4)
      return rounded(static_cast<float>(value), static_cast<Out*>(nullptr));
    else
      return rounded(odd_double(value), static_cast<Out*>(nullptr));
  } else if constexpr (std::is_same_v<In, Fp16>) {
    return static_cast<Out>(widened(value.bits));
  } else {
    return static_cast<Out>(value);
  }
}

template <std::size_t Bytes>
using BitsOf = std::conditional_t<
    Bytes == 1, std::uint8_t,
    std::conditional_t<Bytes == 2, std::uint16_t,
                       std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;

template <bool Swap, typename In>
[[gnu::always_inline]] inline In load(const std::byte* from) noexcept {
  BitsOf<sizeof(In)> bits;
  std::memcpy(&bits, from, sizeof bits);
  if constexpr (Swap && sizeof(In) == 2) bits = __builtin_bswap16(bits);
  if constexpr (Swap && sizeof(In) == 4) bits = __builtin_bswap32(bits);
  if constexpr (Swap && sizeof(In) == 8) bits = __builtin_bswap64(bits);
  return std::bit_cast<In>(bits);
}

/// Bytes of output that are streamed at once; small enough for the L1 cache.
constexpr std::size_t BLOCK = 4096;

template <typename In, typename Out, bool Swap>
struct Conversion {
  /// Input bytes for a block of output.
  static constexpr std::size_t BLOCK_INPUT = BLOCK / sizeof(Out) * sizeof(In);
  [[gnu::always_inline]] static void move(std::byte* to, const std::byte* from,
                                          std::size_t bytes) noexcept {
    const std::size_t n = bytes / sizeof(In);
    for (std::size_t i = 0; i < n; ++i) {
      const Out out = converted<Out>(load<Swap, In>(from + i * sizeof(In)));
      std::memcpy(to + i * sizeof(Out), &out, sizeof out);
    }
  }
};

/// Makes bytes of pixels of 4 bits, two of a byte, `P` in unpack.h.
template <typename P>
struct Nibbles {
  static constexpr std::size_t BLOCK_INPUT = BLOCK / 2;
  [[gnu::always_inline]] static void move(std::byte* to, const std::byte* from,
                                          std::size_t bytes) noexcept {
    // Whether the first nibble is moved to the upper byte of the two.
    constexpr bool UP = P::IS_MSB_FIRST == (std::endian::native == std::endian::big);
    for (std::size_t i = 0; i < bytes; ++i) {
      const auto both = static_cast<std::uint16_t>(from[i]);
      auto two = static_cast<std::uint16_t>(UP ? (both & 0x0FU) | (both & 0xF0U) << 4U
                                               : (both >> 4U) | (both & 0x0FU) << 8U);
      // Eight times 0x1E are the upper bits of a negative one.
      if constexpr (P::IS_SIGNED) two = static_cast<std::uint16_t>(two | (two & 0x0808U) * 0x1EU);
      std::memcpy(to + 2 * i, &two, sizeof two);
    }
  }
};

}  // namespace daqiri::reorder
