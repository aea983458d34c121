#include "api/call.h"

#include <cstddef>
#include <iterator>

#include "daqiri/daqiri.h"

namespace daqiri {

namespace api {

namespace {

/// Enough for a validation report of some dozens of problems. Plain memory, so that it outlives
/// every destructor of the thread.
constexpr std::size_t CAPACITY = 8191;
thread_local char last[CAPACITY + 1];
thread_local std::size_t last_size = 0;

}  // namespace

Reason::Reason(std::string_view call) noexcept {
  last_size = 0;
  add(call).add(": ");
}

Reason& Reason::add(std::string_view text) noexcept {
  last_size += text.copy(last + last_size, CAPACITY - last_size);
  last[last_size] = '\0';
  return *this;
}

std::string_view Reason::text() const noexcept { return {last, last_size}; }

}  // namespace api

const char* last_error() noexcept { return api::last; }

std::string_view status_name(Status status) noexcept {
  static constexpr std::string_view NAMES[]{
      "SUCCESS",         "NULL_PTR",          "NO_FREE_BURST_BUFFERS", "NO_FREE_PACKET_BUFFERS",
      "NOT_READY",       "INVALID_PARAMETER", "NO_SPACE_AVAILABLE",    "NOT_SUPPORTED",
      "GENERIC_FAILURE", "CONNECT_FAILURE",   "INTERNAL_ERROR"};
  const auto i = static_cast<std::size_t>(status);
  return i < std::size(NAMES) ? NAMES[i] : "UNKNOWN";
}

}  // namespace daqiri
