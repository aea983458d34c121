/// Copies elements of a payload to elements of a frame and converts them in the same pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daqiri/reorder.h"

namespace daqiri::reorder {

/// Bits of an element; 0 for what is no type of one.
[[nodiscard]] constexpr std::uint32_t bits_of(ReorderDataType type) noexcept {
  switch (type) {
    case ReorderDataType::INT4:
      return 4;
    case ReorderDataType::INT8:
    case ReorderDataType::UINT8:
      return 8;
    case ReorderDataType::INT16:
    case ReorderDataType::UINT16:
    case ReorderDataType::FP16:
    case ReorderDataType::BF16:
      return 16;
    case ReorderDataType::INT32:
    case ReorderDataType::UINT32:
    case ReorderDataType::FP32:
      return 32;
    case ReorderDataType::FP64:
      return 64;
    case ReorderDataType::SAME:
    case ReorderDataType::INVALID:
      break;
  }
  return 0;
}

/// Moves the elements of `bytes` input bytes, a whole number of them, from `from` to `to`. Neither
/// needs an alignment.
using Move = void (*)(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Instruction sets that moves are compiled for.
enum class MoveSet : std::uint8_t { PORTABLE, AVX2, AVX512 };
/// The best one that this processor has.
[[nodiscard]] MoveSet best_move_set() noexcept;

/// STREAMED: as memory::streaming_copy. The portable set has none, and stores as ever.
enum class Stores : std::uint8_t { CACHED, STREAMED };
/// Of the L3 cache that a core uses; 0: there is none, or it is not known.
[[nodiscard]] std::uint64_t last_cache_bytes() noexcept;
/// Whether frames of so many bytes are to be streamed: two of them, one that is made and one that
/// is read, fill the last cache.
[[nodiscard]] bool worth_streaming(std::uint64_t frame_bytes) noexcept;

/// The move of a conversion; null: there is none (`convertible`).
///
/// int4: two's complement, two in a byte, the high nibble first. To fp16 and bf16: round to
/// nearest, ties to even (IEEE 754), beyond the largest number to infinity. Integers to wider ones:
/// the value is kept. NETWORK: elements of 16 and 32 bits are big-endian.
[[nodiscard]] Move move_for(const ReorderDataTypesConfig& types, MoveSet set = best_move_set(),
                            Stores stores = Stores::CACHED) noexcept;

/// Whether there is a conversion: to every floating-point type, to the same type, and to integers
/// that hold every value of the input type.
[[nodiscard]] bool convertible(ReorderDataType input, ReorderDataType output) noexcept;

/// Writes `value` in the type `output` to an element of a frame. SAME: a byte. False, and nothing
/// written: the type does not have the value.
[[nodiscard]] bool encode(double value, ReorderDataType output, std::byte* to) noexcept;

}  // namespace daqiri::reorder
