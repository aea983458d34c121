/// pcapng files, through libpcap.
#pragma once

#include <functional>
#include <string>

namespace daqiri {

/// Writes the packets of a pcapng file to a classic one in nanoseconds, step by step: from the open
/// file `from`, from its beginning, to the open, empty file `to`. `name` is for errors. Throws
/// Error NOT_SUPPORTED without libpcap, INVALID_PARAMETER with libpcap's words.
///
/// The result is to be called until it returns false. Each call takes some milliseconds, and throws
/// Error INVALID_PARAMETER for a damaged file, with the place; GENERIC_FAILURE when `to` cannot be
/// written.
///
/// libpcap is loaded when the first such file is opened: programs that never do run without it.
std::function<bool()> pcapng_conversion(int from, int to, const std::string& name);

}  // namespace daqiri
