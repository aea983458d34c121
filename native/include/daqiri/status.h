/// Result codes of the programming interface. Their order is fixed.
#pragma once

#include <cstdint>
#include <string_view>

namespace daqiri {

/// \addtogroup errors
/// \{

/// Result of a call. After a failure, `last_error` has the reason.
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

/// Return the name of the enumerator, e.g. "NOT_READY".
std::string_view status_name(Status status) noexcept;

/// \}

}  // namespace daqiri
