#include "reorder/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <type_traits>

#include "memory/streaming_copy.h"

namespace daqiri::reorder {

namespace {

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

template <typename Out, typename In>
[[gnu::always_inline]] inline Out converted(In value) noexcept {
  if constexpr (IsSmall<Out>::value) {
    // Via a wide type that holds the value exactly, so that it is rounded once.
    using Wide = std::conditional_t<(sizeof(In) < 4), float, double>;
    return rounded(static_cast<Wide>(value), static_cast<Out*>(nullptr));
  } else {
    return static_cast<Out>(value);
  }
}

template <bool Swap, typename In>
[[gnu::always_inline]] inline In load(const std::byte* from) noexcept {
  using Bits = std::make_unsigned_t<In>;
  Bits bits;
  std::memcpy(&bits, from, sizeof bits);
  if constexpr (Swap && sizeof(In) == 2) bits = __builtin_bswap16(bits);
  if constexpr (Swap && sizeof(In) == 4) bits = __builtin_bswap32(bits);
  return static_cast<In>(bits);
}

/// Two elements per byte.
struct Nibbles;

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

template <typename Out, bool Swap>
struct Conversion<Nibbles, Out, Swap> {
  static constexpr std::size_t BLOCK_INPUT = BLOCK / sizeof(Out) / 2;
  [[gnu::always_inline]] static void move(std::byte* to, const std::byte* from,
                                          std::size_t bytes) noexcept {
    for (std::size_t i = 0; i < bytes; ++i) {
      const auto both = static_cast<std::int8_t>(from[i]);
      const auto high = static_cast<std::int8_t>(both >> 4);
      const auto low = static_cast<std::int8_t>(static_cast<std::int8_t>(both << 4) >> 4);
      const Out out[2] = {converted<Out>(high), converted<Out>(low)};
      std::memcpy(to + i * sizeof out, out, sizeof out);
    }
  }
};

/// Copies in sequence. memcpy reads the end of a payload first; the CPU then stops prefetching,
/// which costs more than the copy (benchmarks/frames.md).
struct Copy {
  static constexpr std::size_t BLOCK_INPUT = BLOCK;
  [[gnu::always_inline]] static void move(std::byte* to, const std::byte* from,
                                          std::size_t bytes) noexcept {
    // A payload begins at any byte. Either compiler ignores aligned(1) where the other wants it.
#ifdef __clang__
    using Line [[gnu::vector_size(64), gnu::aligned(1), gnu::may_alias]] = char;
#else
    using Line = char __attribute__((vector_size(64), aligned(1), may_alias));
#endif
    static_assert(alignof(Line) == 1);
    constexpr std::size_t STEP = 4;
    std::size_t at = 0;
    for (; at + STEP * sizeof(Line) <= bytes; at += STEP * sizeof(Line)) {
      const auto* const in = reinterpret_cast<const Line*>(from + at);
      auto* const out = reinterpret_cast<Line*>(to + at);
      const Line a = in[0];
      const Line b = in[1];
      const Line c = in[2];
      const Line d = in[3];
      out[0] = a;
      out[1] = b;
      out[2] = c;
      out[3] = d;
    }
    if (at < bytes) std::memcpy(to + at, from + at, bytes - at);
  }
};

// The same loops, compiled for each instruction set.

template <typename Loop>
void portable(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  Loop::move(to, from, bytes);
}

#ifdef __x86_64__
template <typename Loop>
[[gnu::target("avx2,bmi2")]] void avx2(std::byte* to, const std::byte* from,
                                       std::size_t bytes) noexcept {
  Loop::move(to, from, bytes);
}
#ifdef __clang__
#define DAQIRI_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,bmi2"
#else
#define DAQIRI_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,bmi2,prefer-vector-width=512"
#endif
template <typename Loop>
[[gnu::target(DAQIRI_AVX512)]] void avx512(std::byte* to, const std::byte* from,
                                           std::size_t bytes) noexcept {
  Loop::move(to, from, bytes);
}

template <typename Loop, Move MOVE>
void streamed(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  alignas(64) std::byte block[BLOCK];
  while (bytes > 0) {
    const std::size_t n = std::min(bytes, Loop::BLOCK_INPUT);
    const std::size_t made = n * BLOCK / Loop::BLOCK_INPUT;
    MOVE(block, from, n);
    memory::streaming_copy(to, block, made);
    to += made;
    from += n;
    bytes -= n;
  }
}
#endif

/// Instruction set and kind of stores.
struct Code {
  MoveSet set;
  Stores stores;
};

template <typename Loop>
Move compiled(Code code) noexcept {
#ifdef __x86_64__
  const bool streams = code.stores == Stores::STREAMED;
  if (code.set == MoveSet::AVX512) return streams ? streamed<Loop, avx512<Loop>> : avx512<Loop>;
  if (code.set == MoveSet::AVX2) return streams ? streamed<Loop, avx2<Loop>> : avx2<Loop>;
#else
  (void)code;
#endif
  return portable<Loop>;
}

Move copy(Code code) noexcept {
#ifdef __x86_64__
  if (code.stores == Stores::STREAMED && code.set != MoveSet::PORTABLE)
    return memory::streaming_copy;
#endif
  return compiled<Copy>(code);
}

template <typename In, bool Swap>
Move to_output(ReorderDataType output, Code code) noexcept {
  switch (output) {
    case ReorderDataType::FP16:
      return compiled<Conversion<In, Fp16, Swap>>(code);
    case ReorderDataType::BF16:
      return compiled<Conversion<In, Bf16, Swap>>(code);
    case ReorderDataType::FP32:
      return compiled<Conversion<In, float, Swap>>(code);
    case ReorderDataType::FP64:
      return compiled<Conversion<In, double, Swap>>(code);
    case ReorderDataType::INT8:
      return compiled<Conversion<In, std::int8_t, Swap>>(code);
    case ReorderDataType::UINT8:
      return compiled<Conversion<In, std::uint8_t, Swap>>(code);
    case ReorderDataType::INT16:
      return compiled<Conversion<In, std::int16_t, Swap>>(code);
    case ReorderDataType::UINT16:
      return compiled<Conversion<In, std::uint16_t, Swap>>(code);
    case ReorderDataType::INT32:
      return compiled<Conversion<In, std::int32_t, Swap>>(code);
    case ReorderDataType::UINT32:
      return compiled<Conversion<In, std::uint32_t, Swap>>(code);
    case ReorderDataType::SAME:
    case ReorderDataType::INT4:
    case ReorderDataType::INVALID:
      break;
  }
  return nullptr;
}

template <typename In>
Move from_input(const ReorderDataTypesConfig& types, Code code) noexcept {
  constexpr bool HOST_IS_NETWORK = std::endian::native == std::endian::big;
  const bool swap = types.endianness_ == ReorderEndianness::NETWORK && !HOST_IS_NETWORK;
  return swap ? to_output<In, true>(types.output_type_, code)
              : to_output<In, false>(types.output_type_, code);
}

bool is_float(ReorderDataType type) noexcept {
  return type == ReorderDataType::FP16 || type == ReorderDataType::BF16 ||
         type == ReorderDataType::FP32 || type == ReorderDataType::FP64;
}

bool is_unsigned(ReorderDataType type) noexcept {
  return type == ReorderDataType::UINT8 || type == ReorderDataType::UINT16 ||
         type == ReorderDataType::UINT32;
}

template <typename T>
bool put_integer(double value, std::byte* to) noexcept {
  if (!(value >= static_cast<double>(std::numeric_limits<T>::min()) &&
        value <= static_cast<double>(std::numeric_limits<T>::max())) ||
      value != std::trunc(value))
    return false;
  const T out = static_cast<T>(value);
  std::memcpy(to, &out, sizeof out);
  return true;
}

/// For any number.
template <int E, int F>
std::uint16_t small_bits(double value) noexcept {
  constexpr int BIAS = (1 << (E - 1)) - 1;
  constexpr int INFINITE = ((1 << E) - 1) << F;
  const int sign = std::signbit(value) ? 1 << 15 : 0;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | INFINITE | 1 << (F - 1));
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  int exponent = std::isinf(magnitude) ? 2 * BIAS : std::max(std::ilogb(magnitude), 1 - BIAS);
  // In units of the last place: an integer below 2^(F + 1), rounded to nearest by the current mode.
  const double units =
      std::isinf(magnitude) ? 0 : std::nearbyint(std::ldexp(magnitude, F - exponent));
  const double bits = units + std::ldexp(exponent + BIAS - 1, F);
  const bool infinite = std::isinf(magnitude) || bits >= INFINITE;
  return static_cast<std::uint16_t>(sign | (infinite ? INFINITE : static_cast<int>(bits)));
}

}  // namespace

MoveSet best_move_set() noexcept {
#ifdef __x86_64__
  static const MoveSet found = [] {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2"))
      return MoveSet::PORTABLE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return MoveSet::AVX512;
    return MoveSet::AVX2;
  }();
  return found;
#else
  return MoveSet::PORTABLE;
#endif
}

bool convertible(ReorderDataType input, ReorderDataType output) noexcept {
  if (input == ReorderDataType::SAME) return output == ReorderDataType::SAME;
  if (bits_of(input) == 0 || is_float(input)) return false;
  if (is_float(output)) return true;
  if (bits_of(output) == 0 || output == ReorderDataType::INT4) return false;
  if (is_unsigned(input) == is_unsigned(output)) return bits_of(output) >= bits_of(input);
  return is_unsigned(input) && bits_of(output) > bits_of(input);
}

std::uint64_t last_cache_bytes() noexcept {
  // The cache that one core can use; sysconf returns the sum of all caches.
  static const std::uint64_t found = [] {
    std::uint64_t kib = 0;
    // A number followed by "K".
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
    file >> kib;
    return kib * 1024;
  }();
  return found;
}

bool worth_streaming(std::uint64_t frame_bytes) noexcept {
  const std::uint64_t cache = last_cache_bytes();
  return cache > 0 && frame_bytes >= cache / 2;
}

Move move_for(const ReorderDataTypesConfig& types, MoveSet set, Stores stores) noexcept {
  const Code code{set, stores};
  if (!convertible(types.input_type_, types.output_type_)) return nullptr;
  const bool swapped = types.endianness_ == ReorderEndianness::NETWORK &&
                       bits_of(types.input_type_) > 8 && std::endian::native != std::endian::big;
  if (types.input_type_ == types.output_type_ && !swapped) return copy(code);
  switch (types.input_type_) {
    case ReorderDataType::INT4:
      return to_output<Nibbles, false>(types.output_type_, code);
    case ReorderDataType::INT8:
      return to_output<std::int8_t, false>(types.output_type_, code);
    case ReorderDataType::UINT8:
      return to_output<std::uint8_t, false>(types.output_type_, code);
    case ReorderDataType::INT16:
      return from_input<std::int16_t>(types, code);
    case ReorderDataType::UINT16:
      return from_input<std::uint16_t>(types, code);
    case ReorderDataType::INT32:
      return from_input<std::int32_t>(types, code);
    case ReorderDataType::UINT32:
      return from_input<std::uint32_t>(types, code);
    default:
      return nullptr;
  }
}

bool encode(double value, ReorderDataType output, std::byte* to) noexcept {
  const auto put = [to](auto element) {
    std::memcpy(to, &element, sizeof element);
    return true;
  };
  switch (output) {
    case ReorderDataType::FP16:
      return put(small_bits<5, 10>(value));
    case ReorderDataType::BF16:
      return put(small_bits<8, 7>(value));
    case ReorderDataType::FP32:
      return put(static_cast<float>(value));
    case ReorderDataType::FP64:
      return put(value);
    case ReorderDataType::INT8:
      return put_integer<std::int8_t>(value, to);
    case ReorderDataType::SAME:
    case ReorderDataType::UINT8:
      return put_integer<std::uint8_t>(value, to);
    case ReorderDataType::INT16:
      return put_integer<std::int16_t>(value, to);
    case ReorderDataType::UINT16:
      return put_integer<std::uint16_t>(value, to);
    case ReorderDataType::INT32:
      return put_integer<std::int32_t>(value, to);
    case ReorderDataType::UINT32:
      return put_integer<std::uint32_t>(value, to);
    case ReorderDataType::INT4:
    case ReorderDataType::INVALID:
      break;
  }
  return false;
}

}  // namespace daqiri::reorder
