#include "daqiri/status.h"

#include <array>

namespace daqiri {

std::string_view status_name(Status status) noexcept {
  static constexpr std::array<std::string_view, 11> NAMES{
      "SUCCESS",         "NULL_PTR",          "NO_FREE_BURST_BUFFERS", "NO_FREE_PACKET_BUFFERS",
      "NOT_READY",       "INVALID_PARAMETER", "NO_SPACE_AVAILABLE",    "NOT_SUPPORTED",
      "GENERIC_FAILURE", "CONNECT_FAILURE",   "INTERNAL_ERROR"};
  const auto i = static_cast<std::size_t>(status);
  return i < NAMES.size() ? NAMES[i] : std::string_view{"UNKNOWN"};
}

}  // namespace daqiri
