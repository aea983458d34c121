/// What a write of a burst to files has done.
#pragma once

#include <cstdint>

namespace daqiri {

/// \addtogroup files
/// \{

/// Progress of a write; final when it is done.
struct FileWriteStatus {
  /// Packets that are whole in their file.
  std::uint32_t completed_packets{0};
  /// Packets that will not be written, after an error.
  std::uint32_t failed_packets{0};
  /// Bytes that went to files, file and record headers included.
  std::uint64_t bytes_written{0};
};

/// A write that goes on in the background. Opaque; the functions are in daqiri.h.
class FileWriteHandle;

/// \}

}  // namespace daqiri
