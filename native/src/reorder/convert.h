/// Copies elements of a payload to elements of a frame and converts them in the same pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daqiri/reorder.h"

namespace daqiri::reorder {

/// Bits of an element; 0 if the type has no elements.
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

/// Copies and converts `bytes` input bytes, a whole number of elements, from `from` to `to`. No
/// alignment is required.
using Move = void (*)(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Instruction sets that moves are compiled for.
enum class MoveSet : std::uint8_t { PORTABLE, AVX2, AVX512 };
/// The best one that this CPU supports.
[[nodiscard]] MoveSet best_move_set() noexcept;

/// STREAMED: like memory::streaming_copy. The portable set has only ordinary stores.
enum class Stores : std::uint8_t { CACHED, STREAMED };
/// Size of the L3 cache that a core uses; 0: none, or unknown.
[[nodiscard]] std::uint64_t last_cache_bytes() noexcept;
/// Whether to stream frames of this many bytes: two frames, one being written and one being read,
/// fill the last cache.
[[nodiscard]] bool worth_streaming(std::uint64_t frame_bytes) noexcept;

/// The move for a conversion; null: not supported (`convertible`).
///
/// int4: two's complement, two per byte, the high nibble first. To fp16 and bf16: round to nearest,
/// ties to even (IEEE 754), to infinity above the largest number. Integers to wider ones keep their
/// value. NETWORK: elements of 16 and 32 bits are big-endian.
[[nodiscard]] Move move_for(const ReorderDataTypesConfig& types, MoveSet set = best_move_set(),
                            Stores stores = Stores::CACHED) noexcept;

/// Whether the conversion is supported: to every floating-point type, to the same type, and to
/// integers that hold every value of the input type.
[[nodiscard]] bool convertible(ReorderDataType input, ReorderDataType output) noexcept;

/// Writes `value` as type `output` to an element of a frame. SAME: one byte. Returns false, without
/// writing, if the type cannot hold the value.
[[nodiscard]] bool encode(double value, ReorderDataType output, std::byte* to) noexcept;

}  // namespace daqiri::reorder
