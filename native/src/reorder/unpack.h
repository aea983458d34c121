/// Pixels of 4, 10, 12, 14 and 24 bits, and functions that make integers of 16 and 32 bits of all
/// but those of 4 bits.
///
/// Vectors consist of lanes of 16 bytes of output. A lane shuffles the bytes that its pixels are in
/// to their elements, moves each pixel to the upper end of its element by a multiplication, and
/// shifts it down: this removes bits of other pixels, and extends the sign.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>

#ifdef __x86_64__
#include <immintrin.h>
#elif defined __aarch64__
#include <arm_neon.h>
#endif

namespace daqiri::reorder {

/// Pixels of `BITS` bits. MSB_FIRST: a pixel begins with its most significant bit, at the most
/// significant bit of a byte that is not taken; else both begin with the least significant one. Of
/// 24 bits: big-endian, or little-endian.
template <int BITS, bool SIGNED, bool MSB_FIRST>
struct Packed {
  static constexpr int WIDTH = BITS > 16 ? 32 : BITS > 8 ? 16 : 8;
  using Signed = std::conditional_t<WIDTH == 8, std::int8_t,
                                    std::conditional_t<WIDTH == 16, std::int16_t, std::int32_t>>;
  /// What pixels become.
  using Element = std::conditional_t<SIGNED, Signed, std::make_unsigned_t<Signed>>;

  static constexpr int PIXEL_BITS = BITS;
  static constexpr bool IS_SIGNED = SIGNED;
  static constexpr bool IS_MSB_FIRST = MSB_FIRST;
  /// Pixels that fill whole bytes, and these bytes.
  static constexpr int GROUP = 8 / std::gcd(BITS, 8);
  static constexpr int GROUP_BYTES = GROUP * BITS / 8;
  /// Elements of a lane, and bytes that they are made of.
  static constexpr int LANE = 128 / WIDTH;
  static constexpr int LANE_BYTES = LANE * BITS / 8;
};

template <typename P>
void unpack_scalar(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  using Element = typename P::Element;
  constexpr int BITS = P::PIXEL_BITS;
  constexpr bool SWAP = P::IS_MSB_FIRST == (std::endian::native == std::endian::little);
  for (const std::byte* const end = from + bytes; from < end; from += P::GROUP_BYTES) {
    std::uint64_t group = 0;
    std::memcpy(&group, from, P::GROUP_BYTES);
    if constexpr (SWAP) group = __builtin_bswap64(group);
    for (int i = 0; i < P::GROUP; ++i) {
      const std::uint64_t high = group << (P::IS_MSB_FIRST ? i * BITS : 64 - (i + 1) * BITS);
      const auto element =
          P::IS_SIGNED ? static_cast<Element>(static_cast<std::int64_t>(high) >> (64 - BITS))
                       : static_cast<Element>(high >> (64 - BITS));
      std::memcpy(to, &element, sizeof element);
      to += sizeof element;
    }
  }
}

/// What the elements of a lane are made of, for four lanes.
template <typename P>
struct Lanes {
  static constexpr std::uint8_t ZERO = 0x80;
  /// Bytes of the elements, least significant first, and factors that move pixels up.
  std::array<std::uint8_t, 64> bytes{};
  std::array<std::uint16_t, 32> up{};
  /// Of pixels that are in three bytes: the byte of its last bits, its factor, which leaves these
  /// bits 8 bits too high, and a mask of them.
  static constexpr bool HAS_REST = P::PIXEL_BITS == 14;
  std::array<std::uint8_t, 64> rest_bytes{};
  std::array<std::uint16_t, 32> rest_up{};
  std::array<std::uint16_t, 32> rest_mask{};
  /// Words of the lanes in the bytes that they are made of.
  std::array<std::uint16_t, 32> words{};

  constexpr Lanes() noexcept {
    for (std::size_t i = 0; i < 32; ++i) {
      words[i] = static_cast<std::uint16_t>(i / 8 * (P::LANE_BYTES / 2) + i % 8);
      if constexpr (P::WIDTH == 16) place(i, static_cast<int>(i % 8));
    }
    for (std::size_t i = 0; P::WIDTH == 32 && i < 64; ++i) {
      // Of an element, which has one byte more.
      const std::size_t byte = P::IS_MSB_FIRST ? 3 - i % 4 : i % 4 - 1;
      bytes[i] = i % 4 == 0 ? ZERO : static_cast<std::uint8_t>(i % 16 / 4 * 3 + byte);
    }
  }

 private:
  constexpr void place(std::size_t i, int pixel) noexcept {
    constexpr int BITS = P::PIXEL_BITS;
    const int first = pixel * BITS / 8;
    const int bit = pixel * BITS % 8;
    const bool whole = bit + BITS <= 16;
    rest_bytes[2 * i] = rest_bytes[2 * i + 1] = ZERO;
    rest_mask[i] = 0xFFFF;
    const auto set = [&](int low, int high, int shift) {
      bytes[2 * i] = static_cast<std::uint8_t>(low);
      bytes[2 * i + 1] = static_cast<std::uint8_t>(high);
      up[i] = static_cast<std::uint16_t>(1 << shift);
    };
    const auto set_rest = [&](int byte, int shift) {
      rest_bytes[2 * i] = static_cast<std::uint8_t>(byte);
      rest_up[i] = static_cast<std::uint16_t>(1 << shift);
    };
    if (P::IS_MSB_FIRST) {
      set(first + 1, first, bit);
      if (!whole) set_rest(first + 2, bit);
    } else if (whole) {
      set(first, first + 1, 16 - bit - BITS);
    } else {
      set(first + 1, first + 2, 24 - bit - BITS);
      set_rest(first, 24 - bit - BITS);
      rest_mask[i] = static_cast<std::uint16_t>(((1 << (8 - bit)) - 1) << (16 - BITS));
    }
  }
};

template <typename P>
inline constexpr Lanes<P> LANES{};

// A function for each instruction set, each the same: vectors, and the last ones in a buffer or
// with masks, because a vector reads beyond its pixels.

#ifdef __x86_64__

#define DAQIRI_AVX2 "avx2,bmi2"
#ifdef __clang__
#define DAQIRI_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,bmi2"
#else
#define DAQIRI_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,bmi2,prefer-vector-width=512"
#endif

template <typename Table>
[[gnu::target(DAQIRI_AVX2),
  gnu::always_inline]] inline __m256i two_of(const Table& table) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(table.data()));
}

/// Makes 32 bytes of two lanes.
template <typename P>
[[gnu::target(DAQIRI_AVX2), gnu::always_inline]] inline void step_avx2(
    std::byte* to, const std::byte* from) noexcept {
  const auto* const low = reinterpret_cast<const __m128i*>(from);
  const auto* const high = reinterpret_cast<const __m128i*>(from + P::LANE_BYTES);
  const __m256i in = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)),
                                             _mm_loadu_si128(high), 1);
  __m256i out = _mm256_shuffle_epi8(in, two_of(LANES<P>.bytes));
  if constexpr (P::WIDTH == 32) {
    out = P::IS_SIGNED ? _mm256_srai_epi32(out, 8) : _mm256_srli_epi32(out, 8);
  } else {
    constexpr int DOWN = 16 - P::PIXEL_BITS;
    out = _mm256_mullo_epi16(out, two_of(LANES<P>.up));
    if constexpr (Lanes<P>::HAS_REST) {
      __m256i rest = _mm256_shuffle_epi8(in, two_of(LANES<P>.rest_bytes));
      rest = _mm256_mullo_epi16(rest, two_of(LANES<P>.rest_up));
      rest = _mm256_and_si256(_mm256_srli_epi16(rest, 8), two_of(LANES<P>.rest_mask));
      out = _mm256_or_si256(out, rest);
    }
    out = P::IS_SIGNED ? _mm256_srai_epi16(out, DOWN) : _mm256_srli_epi16(out, DOWN);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), out);
}

template <typename P>
[[gnu::target(DAQIRI_AVX2)]] void unpack_avx2(std::byte* to, const std::byte* from,
                                              std::size_t bytes) noexcept {
  constexpr std::size_t STEP = 2 * P::LANE_BYTES;
  constexpr std::size_t READ = P::LANE_BYTES + 16;
  for (; bytes >= READ; bytes -= STEP, from += STEP, to += 32) step_avx2<P>(to, from);
  if (bytes == 0) return;
  std::byte in[2 * READ]{};
  std::byte out[64];
  std::memcpy(in, from, bytes);
  step_avx2<P>(out, in);
  step_avx2<P>(out + 32, in + STEP);
  std::memcpy(to, out, bytes / P::GROUP_BYTES * P::GROUP * sizeof(typename P::Element));
}

/// Makes 64 bytes of four lanes.
template <typename P>
[[gnu::target(DAQIRI_AVX512), gnu::always_inline]] inline __m512i step_avx512(__m512i in) noexcept {
  in = _mm512_permutexvar_epi16(_mm512_loadu_si512(LANES<P>.words.data()), in);
  __m512i out = _mm512_shuffle_epi8(in, _mm512_loadu_si512(LANES<P>.bytes.data()));
  if constexpr (P::WIDTH == 32) {
    // GCC 12 warns about what it leaves undefined without a mask.
    constexpr __mmask16 ALL = 0xFFFF;
    return P::IS_SIGNED ? _mm512_maskz_srai_epi32(ALL, out, 8)
                        : _mm512_maskz_srli_epi32(ALL, out, 8);
  } else {
    constexpr int DOWN = 16 - P::PIXEL_BITS;
    out = _mm512_mullo_epi16(out, _mm512_loadu_si512(LANES<P>.up.data()));
    if constexpr (Lanes<P>::HAS_REST) {
      __m512i rest = _mm512_shuffle_epi8(in, _mm512_loadu_si512(LANES<P>.rest_bytes.data()));
      rest = _mm512_srli_epi16(
          _mm512_mullo_epi16(rest, _mm512_loadu_si512(LANES<P>.rest_up.data())), 8);
      out = _mm512_or_si512(out,
                            _mm512_and_si512(rest, _mm512_loadu_si512(LANES<P>.rest_mask.data())));
    }
    return P::IS_SIGNED ? _mm512_srai_epi16(out, DOWN) : _mm512_srli_epi16(out, DOWN);
  }
}

template <typename P>
[[gnu::target(DAQIRI_AVX512)]] void unpack_avx512(std::byte* to, const std::byte* from,
                                                  std::size_t bytes) noexcept {
  constexpr std::size_t STEP = 4 * P::LANE_BYTES;
  for (; bytes >= 64; bytes -= STEP, from += STEP, to += 64)
    _mm512_storeu_si512(to, step_avx512<P>(_mm512_loadu_si512(from)));
  while (bytes > 0) {
    const std::size_t read = bytes < STEP ? bytes : STEP;
    const std::size_t made = read / P::GROUP_BYTES * P::GROUP * sizeof(typename P::Element);
    const __m512i in = _mm512_maskz_loadu_epi8(~std::uint64_t{0} >> (64 - read), from);
    _mm512_mask_storeu_epi8(to, ~std::uint64_t{0} >> (64 - made), step_avx512<P>(in));
    bytes -= read, from += read, to += made;
  }
}

#elif defined __aarch64__

template <typename P>
inline void step_neon(std::byte* to, const std::byte* from) noexcept {
  const uint8x16_t in = vld1q_u8(reinterpret_cast<const std::uint8_t*>(from));
  const uint8x16_t bytes = vqtbl1q_u8(in, vld1q_u8(LANES<P>.bytes.data()));
  uint8x16_t out;
  if constexpr (P::WIDTH == 32) {
    const uint32x4_t high = vreinterpretq_u32_u8(bytes);
    out = P::IS_SIGNED ? vreinterpretq_u8_s32(vshrq_n_s32(vreinterpretq_s32_u32(high), 8))
                       : vreinterpretq_u8_u32(vshrq_n_u32(high, 8));
  } else {
    constexpr int DOWN = 16 - P::PIXEL_BITS;
    uint16x8_t high = vmulq_u16(vreinterpretq_u16_u8(bytes), vld1q_u16(LANES<P>.up.data()));
    if constexpr (Lanes<P>::HAS_REST) {
      const uint8x16_t last = vqtbl1q_u8(in, vld1q_u8(LANES<P>.rest_bytes.data()));
      const uint16x8_t rest =
          vmulq_u16(vreinterpretq_u16_u8(last), vld1q_u16(LANES<P>.rest_up.data()));
      high = vorrq_u16(high, vandq_u16(vshrq_n_u16(rest, 8), vld1q_u16(LANES<P>.rest_mask.data())));
    }
    out = P::IS_SIGNED ? vreinterpretq_u8_s16(vshrq_n_s16(vreinterpretq_s16_u16(high), DOWN))
                       : vreinterpretq_u8_u16(vshrq_n_u16(high, DOWN));
  }
  vst1q_u8(reinterpret_cast<std::uint8_t*>(to), out);
}

template <typename P>
void unpack_neon(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t STEP = P::LANE_BYTES;
  for (; bytes >= 16; bytes -= STEP, from += STEP, to += 16) step_neon<P>(to, from);
  if (bytes == 0) return;
  std::byte in[32]{};
  std::byte out[32];
  std::memcpy(in, from, bytes);
  step_neon<P>(out, in);
  step_neon<P>(out + 16, in + STEP);
  std::memcpy(to, out, bytes / P::GROUP_BYTES * P::GROUP * sizeof(typename P::Element));
}

#endif

}  // namespace daqiri::reorder
