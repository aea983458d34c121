/// How a call of the programming interface fails: a status, and the reason in last_error() and the
/// log.
#pragma once

#include <charconv>
#include <concepts>
#include <exception>
#include <string_view>

#include "daqiri/error.h"
#include "system/log.h"

namespace daqiri::api {

/// The calling thread's reason, written piece by piece without allocating; what does not fit is
/// cut.
class Reason {
 public:
  explicit Reason(std::string_view call) noexcept;
  Reason& add(std::string_view text) noexcept;
  template <std::integral Integer>
  Reason& add(Integer number) noexcept {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    return add(std::string_view(digits, static_cast<std::size_t>(end - digits)));
  }
  [[nodiscard]] std::string_view text() const noexcept;
};

/// Set the reason to "<call>: <parts>" and return `status`. Logged as an error.
template <typename... Parts>
Status fail(Status status, std::string_view call, const Parts&... parts) noexcept {
  Reason reason(call);
  (reason.add(parts), ...);
  log(LogLevel::ERROR, reason.text());
  return status;
}

/// As `fail`, for calls made per burst or packet, whose failures may come thousands a second:
/// logged for debugging only.
template <typename... Parts>
Status refuse(Status status, std::string_view call, const Parts&... parts) noexcept {
  Reason reason(call);
  (reason.add(parts), ...);
  log(LogLevel::DEBUG, reason.text());
  return status;
}

/// Run `action`, which returns a Status, and turn what it throws into one.
template <typename Action>
Status guarded(std::string_view call, Action&& action) noexcept {
  try {
    return action();
  } catch (const Error& error) {
    return fail(error.status(), call, std::string_view(error.what()));
  } catch (const std::exception& error) {
    return fail(Status::GENERIC_FAILURE, call, std::string_view(error.what()));
  }
}

}  // namespace daqiri::api
