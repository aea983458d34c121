/// One file a packet.
#pragma once

#include <cstdint>
#include <string>

#include "burst/burst.h"
#include "system/file.h"

namespace daqiri {

/// Writes packets to <directory>/<prefix>_<index>.
class RawWriter {
 public:
  /// Throws Error GENERIC_FAILURE when the directory cannot be opened.
  RawWriter(std::string directory, std::string prefix, std::uint64_t packet_data_offset);

  /// Write packet `index` without its first `packet_data_offset` bytes; an existing file is
  /// truncated. Returns the bytes written. Throws Error GENERIC_FAILURE with path and errno,
  /// leaving no part of it.
  std::uint64_t write(const Burst& burst, std::uint32_t index);

 private:
  std::string directory_;
  std::string prefix_;
  std::uint64_t skip_;
  File folder_;
  /// "<prefix>_<index>"
  std::string name_;
};

}  // namespace daqiri
