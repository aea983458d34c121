#include "reorder/convert.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <type_traits>

#include "memory/streaming_copy.h"
#include "reorder/conversion.h"
#include "reorder/unpack.h"

namespace daqiri::reorder {

namespace {

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
[[gnu::target(DAQIRI_AVX2)]] void avx2(std::byte* to, const std::byte* from,
                                       std::size_t bytes) noexcept {
  Loop::move(to, from, bytes);
}
template <typename Loop>
[[gnu::target(DAQIRI_AVX512)]] void avx512(std::byte* to, const std::byte* from,
                                           std::size_t bytes) noexcept {
  Loop::move(to, from, bytes);
}

/// `input`: bytes of a block.
[[gnu::noinline]] void stream(std::byte* to, const std::byte* from, std::size_t bytes, Move move,
                              std::size_t input) noexcept {
  alignas(64) std::byte block[BLOCK];
  while (bytes > 0) {
    const std::size_t n = std::min(bytes, input);
    const std::size_t made = n * BLOCK / input;
    move(block, from, n);
    memory::streaming_copy(to, block, made);
    to += made;
    from += n;
    bytes -= n;
  }
}

template <typename Loop, Move MOVE>
void streamed(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  stream(to, from, bytes, MOVE, Loop::BLOCK_INPUT);
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

/// Calls `make` with a null pointer to the type of output elements.
template <typename Make>
Move with_output(ReorderDataType output, Make make) noexcept {
  switch (output) {
    case ReorderDataType::FP16:
      return make(static_cast<Fp16*>(nullptr));
    case ReorderDataType::BF16:
      return make(static_cast<Bf16*>(nullptr));
    case ReorderDataType::FP32:
      return make(static_cast<float*>(nullptr));
    case ReorderDataType::FP64:
      return make(static_cast<double*>(nullptr));
    // A signed type has the bits of an unsigned one, into which the sign is extended.
    case ReorderDataType::INT8:
    case ReorderDataType::UINT8:
      return make(static_cast<std::uint8_t*>(nullptr));
    case ReorderDataType::INT16:
    case ReorderDataType::UINT16:
      return make(static_cast<std::uint16_t*>(nullptr));
    case ReorderDataType::INT32:
    case ReorderDataType::UINT32:
      return make(static_cast<std::uint32_t*>(nullptr));
    case ReorderDataType::INT64:
    case ReorderDataType::UINT64:
      return make(static_cast<std::uint64_t*>(nullptr));
    default:
      return nullptr;
  }
}

/// Whether such elements are made: integers are not narrowed, and floats only widened.
template <typename In, typename Out>
constexpr bool are_made() noexcept {
  if constexpr (IsSmall<In>::value || std::is_floating_point_v<In>)
    return std::is_floating_point_v<Out> && sizeof(Out) > sizeof(In);
  else if constexpr (IsSmall<Out>::value || std::is_floating_point_v<Out>)
    return true;
  else
    return sizeof(Out) >= sizeof(In);
}

template <typename In, bool Swap>
Move to_output(ReorderDataType output, Code code) noexcept {
  return with_output(output, [code]<typename Out>(Out*) -> Move {
    if constexpr (are_made<In, Out>()) return compiled<Conversion<In, Out, Swap>>(code);
    return nullptr;
  });
}

/// Unpacks blocks of pixels, and converts them. `input` bytes become a block, of which `output` are
/// made.
[[gnu::noinline]] void convert_blocks(std::byte* to, const std::byte* from, std::size_t bytes,
                                      Move unpack, Move convert, std::size_t input,
                                      std::size_t output) noexcept {
  alignas(64) std::byte block[BLOCK];
  while (bytes > 0) {
    const std::size_t n = std::min(bytes, input);
    unpack(block, from, n);
    convert(to, block, n * BLOCK / input);
    to += n * output / input;
    from += n;
    bytes -= n;
  }
}

template <typename P, typename Out, Move UNPACK, Move CONVERT>
struct Staged {
  static constexpr std::size_t BLOCK_INPUT = BLOCK / sizeof(Out) * P::PIXEL_BITS / 8;
  static void move(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    constexpr std::size_t PIXELS = BLOCK / sizeof(typename P::Element);
    convert_blocks(to, from, bytes, UNPACK, CONVERT, PIXELS * P::PIXEL_BITS / 8,
                   PIXELS * sizeof(Out));
  }
};

template <typename P, typename Out, Move UNPACK, Move CONVERT>
Move staged(Code code) noexcept {
  using Element = typename P::Element;
  using Loop = Staged<P, Out, UNPACK, CONVERT>;
  // A signed type has the bits of an unsigned one.
  constexpr bool UNPACKED = std::is_integral_v<Out> && sizeof(Out) == sizeof(Element);
  constexpr Move MOVE = UNPACKED ? UNPACK : Loop::move;
#ifdef __x86_64__
  if (code.stores == Stores::STREAMED && code.set != MoveSet::PORTABLE) return streamed<Loop, MOVE>;
#else
  static_cast<void>(code);
#endif
  return MOVE;
}

template <typename P>
Move from_packed(ReorderDataType output, Code code) noexcept {
  return with_output(output, [code]<typename Out>(Out*) -> Move {
    using Loop = Conversion<typename P::Element, Out, false>;
    if constexpr (!are_made<typename P::Element, Out>()) {
      return nullptr;
    } else if constexpr (P::PIXEL_BITS == 4) {
      using Unpack = Nibbles<P>;
#ifdef __x86_64__
      if (code.set == MoveSet::AVX512) return staged<P, Out, avx512<Unpack>, avx512<Loop>>(code);
      if (code.set == MoveSet::AVX2) return staged<P, Out, avx2<Unpack>, avx2<Loop>>(code);
#endif
      return staged<P, Out, portable<Unpack>, portable<Loop>>(code);
    } else {
#ifdef __x86_64__
      if (code.set == MoveSet::AVX512) return staged<P, Out, unpack_avx512<P>, avx512<Loop>>(code);
      if (code.set == MoveSet::AVX2) return staged<P, Out, unpack_avx2<P>, avx2<Loop>>(code);
#elif defined __aarch64__
      if (code.set == MoveSet::NEON) return staged<P, Out, unpack_neon<P>, portable<Loop>>(code);
#endif
      return staged<P, Out, unpack_scalar<P>, portable<Loop>>(code);
    }
  });
}

/// `msb_first`: as of `Packed`.
template <int BITS>
Move from_bits(const ReorderDataTypesConfig& types, bool msb_first, Code code) noexcept {
  const ReorderDataType output = types.output_type_;
  if (is_unsigned(types.input_type_))
    return msb_first ? from_packed<Packed<BITS, false, true>>(output, code)
                     : from_packed<Packed<BITS, false, false>>(output, code);
  return msb_first ? from_packed<Packed<BITS, true, true>>(output, code)
                   : from_packed<Packed<BITS, true, false>>(output, code);
}

template <typename In>
Move from_input(ReorderDataType output, bool swap, Code code) noexcept {
  return swap ? to_output<In, true>(output, code) : to_output<In, false>(output, code);
}

/// Swaps the bytes of elements.
Move swapped(std::uint32_t bits, Code code) noexcept {
  if (bits == 16) return compiled<Conversion<std::uint16_t, std::uint16_t, true>>(code);
  if (bits == 32) return compiled<Conversion<std::uint32_t, std::uint32_t, true>>(code);
  return compiled<Conversion<std::uint64_t, std::uint64_t, true>>(code);
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
#elif defined __aarch64__
  return MoveSet::NEON;
#else
  return MoveSet::PORTABLE;
#endif
}

bool convertible(ReorderDataType input, ReorderDataType output) noexcept {
  if (input == ReorderDataType::SAME) return output == ReorderDataType::SAME;
  const std::uint32_t from = bits_of(input);
  const std::uint32_t to = bits_of(output);
  if (from == 0 || input == ReorderDataType::BF16 || !std::has_single_bit(to) || to < 8)
    return false;
  if (is_float(input)) return is_float(output) && output != ReorderDataType::BF16 && to >= from;
  if (is_float(output)) return true;
  if (is_unsigned(input) == is_unsigned(output)) return to >= from;
  return is_unsigned(input) && to > from;
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
  constexpr bool HOST_IS_NETWORK = std::endian::native == std::endian::big;
  const bool network = types.endianness_ == ReorderEndianness::NETWORK;
  const bool swap = network && !HOST_IS_NETWORK;
  const ReorderDataType input = types.input_type_;
  const ReorderDataType output = types.output_type_;
  const std::uint32_t bits = bits_of(input);
  if (input == output) return swap && bits > 8 ? swapped(bits, code) : copy(code);
  const bool msb_first = types.packing_ == ReorderPacking::MSB;
  switch (input) {
    case ReorderDataType::INT8:
      return to_output<std::int8_t, false>(output, code);
    case ReorderDataType::UINT8:
      return to_output<std::uint8_t, false>(output, code);
    case ReorderDataType::INT16:
      return from_input<std::int16_t>(output, swap, code);
    case ReorderDataType::UINT16:
      return from_input<std::uint16_t>(output, swap, code);
    case ReorderDataType::INT32:
      return from_input<std::int32_t>(output, swap, code);
    case ReorderDataType::UINT32:
      return from_input<std::uint32_t>(output, swap, code);
    case ReorderDataType::INT64:
      return from_input<std::int64_t>(output, swap, code);
    case ReorderDataType::UINT64:
      return from_input<std::uint64_t>(output, swap, code);
    case ReorderDataType::FP16:
      return from_input<Fp16>(output, swap, code);
    case ReorderDataType::FP32:
      return from_input<float>(output, swap, code);
    default:
      break;
  }
  switch (bits) {
    case 4:
      return from_bits<4>(types, msb_first, code);
    case 10:
      return from_bits<10>(types, msb_first, code);
    case 12:
      return from_bits<12>(types, msb_first, code);
    case 14:
      return from_bits<14>(types, msb_first, code);
    default:
      return from_bits<24>(types, network || HOST_IS_NETWORK, code);
  }
}

}  // namespace daqiri::reorder
