/// Text of users, in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace daqiri {

/// Text in single quotes: control characters are escaped, long text is truncated.
std::string quoted(std::string_view text);

/// Offset of the first byte that is not UTF-8; npos: all are.
std::size_t find_invalid_utf8(std::string_view text) noexcept;

}  // namespace daqiri
