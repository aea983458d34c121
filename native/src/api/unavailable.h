/// Calls that this build declares and does not do.
#pragma once

#include "api/failure.h"
#include "api/sessions.h"

namespace daqiri::api {

/// NOT_SUPPORTED with `missing`; NOT_READY first where there is no session.
inline Status unavailable(std::string_view call, std::string_view missing) noexcept {
  if (running() == nullptr) return fail(Status::NOT_READY, call, not_running());
  return fail(Status::NOT_SUPPORTED, call, missing);
}

}  // namespace daqiri::api
