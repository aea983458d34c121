/// Result codes of the documented interface, in their documented order.
#pragma once

#include <cstdint>
#include <string_view>

namespace daqiri {

/// \addtogroup errors
/// \{

/// What a call came to. The reason of a failure is in `last_error`.
enum class Status : std::int32_t {
  SUCCESS,
  NULL_PTR,
  NO_FREE_BURST_BUFFERS,
  NO_FREE_PACKET_BUFFERS,
  NOT_READY,
  INVALID_PARAMETER,
  NO_SPACE_AVAILABLE,
  NOT_SUPPORTED,
  GENERIC_FAILURE,
  CONNECT_FAILURE,
  INTERNAL_ERROR,
};

/// The enumerator's name, e.g. "NOT_READY".
std::string_view status_name(Status status) noexcept;

/// \}

}  // namespace daqiri
