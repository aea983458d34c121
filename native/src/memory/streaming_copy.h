/// Copies that bypass the CPU caches, so that the written data does not fill them.
#pragma once

#include <cstddef>

namespace daqiri::memory {

/// Like memcpy, but whole cache lines bypass the caches if the CPU supports it. Call
/// `settle_stores` before other threads are notified.
void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
/// Makes earlier streamed stores visible before later stores.
void settle_stores() noexcept;

}  // namespace daqiri::memory
