/// Carrier, speed and MTU of a network interface.
#pragma once

#include "engines/packet/interface.h"
#include "io/io_engine.h"
#include "system/file.h"

namespace daqiri::packet {

/// Queries the kernel, in the network namespace in which it was made.
class InterfaceLink {
 public:
  /// Throws Error.
  explicit InterfaceLink(const NetworkInterface& interface);

  /// The current state. Any thread.
  [[nodiscard]] LinkState state() const noexcept;

 private:
  NetworkInterface interface_;
  File socket_;
};

}  // namespace daqiri::packet
