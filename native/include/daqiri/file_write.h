/// Progress and results of writing a burst to files.
#pragma once

#include <cstdint>

namespace daqiri {

/// \addtogroup files
/// \{

/// Progress of a write; final when the write has finished.
struct FileWriteStatus {
  /// Packets that are completely written.
  std::uint32_t completed_packets{0};
  /// Packets that will not be written because of an error.
  std::uint32_t failed_packets{0};
  /// Bytes written to files, including file and record headers.
  std::uint64_t bytes_written{0};
};

/// A write in the background. Opaque; the functions are in daqiri.h.
class FileWriteHandle;

/// \}

}  // namespace daqiri
