/// Calls that this build declares and does not do.
#pragma once

#include "api/default_session.h"
#include "api/failure.h"

namespace daqiri::api {

/// NOT_SUPPORTED with `missing`; NOT_READY first where there is no session.
inline Status unavailable(std::string_view call, std::string_view missing) noexcept {
  if (running() == nullptr) return fail(Status::NOT_READY, call, NOT_STARTED);
  return fail(Status::NOT_SUPPORTED, call, missing);
}

}  // namespace daqiri::api
