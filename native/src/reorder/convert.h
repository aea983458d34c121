/// Copies elements of a payload to elements of a frame and converts them in the same pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daqiri/reorder.h"
#include "reorder/pixel_types.h"

namespace daqiri::reorder {

/// Copies and converts `bytes` input bytes, whole groups of elements, from `from` to `to`. No
/// alignment is required.
using Move = void (*)(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

/// Instruction sets that moves are compiled for. PORTABLE: no instructions are named in the source.
enum class MoveSet : std::uint8_t { PORTABLE, NEON, AVX2, AVX512 };
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
/// Signed integers are two's complement. To fp16 and bf16: round to nearest, ties to even (IEEE
/// 754), to infinity above the largest number; so are integers of 64 bits to fp32 and fp64.
/// Everything else keeps its value; signaling NaNs become quiet in other types. NETWORK: elements
/// of several whole bytes are big-endian.
[[nodiscard]] Move move_for(const ReorderDataTypesConfig& types, MoveSet set = best_move_set(),
                            Stores stores = Stores::CACHED) noexcept;

/// Whether the conversion is supported: to the same type; of integers to every floating-point type,
/// and to integers that hold every value; of floating-point types to those that hold every value.
[[nodiscard]] bool convertible(ReorderDataType input, ReorderDataType output) noexcept;

/// Writes `value` as type `output` to an element of a frame. SAME: one byte. Returns false, without
/// writing, if the type cannot hold the value.
[[nodiscard]] bool encode(double value, ReorderDataType output, std::byte* to) noexcept;

}  // namespace daqiri::reorder
