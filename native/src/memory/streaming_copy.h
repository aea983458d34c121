/// Copies that bypass the CPU caches, so that the written data does not fill them.
#pragma once

#include <cstddef>

namespace daqiri::memory {

/// As memcpy, whole cache lines past the caches where the processor can. Needs `settle_stores`
/// before others are told.
void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
/// What was streamed before is there before what is stored after.
void settle_stores() noexcept;

}  // namespace daqiri::memory
