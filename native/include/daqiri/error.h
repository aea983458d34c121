/// The exception of the engine. The packet path does not throw.
#pragma once

#include <stdexcept>
#include <string>

#include "daqiri/status.h"

namespace daqiri {

/// \addtogroup errors
/// \{

/// An error with a status and a message.
class Error : public std::runtime_error {
 public:
  /// `message` names what failed, what was found, what is accepted and how to fix it.
  Error(Status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  /// Return the status that a call of the programming interface returns for this error.
  [[nodiscard]] Status status() const noexcept { return status_; }

 private:
  Status status_;
};

/// \}

}  // namespace daqiri
