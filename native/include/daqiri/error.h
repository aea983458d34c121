/// The exception used inside the engine, off the packet path.
#pragma once

#include <stdexcept>
#include <string>

#include "daqiri/status.h"

namespace daqiri {

/// \addtogroup errors
/// \{

/// Carries a status and a text that says what was asked, what was found and what to do.
class Error : public std::runtime_error {
 public:
  /// `message` names the thing, the value, what is accepted and the fix.
  Error(Status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  /// What a call of the programming interface returns for it.
  [[nodiscard]] Status status() const noexcept { return status_; }

 private:
  Status status_;
};

/// \}

}  // namespace daqiri
