/// Bursts to files: at once, or in the background with a handle.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "burst/burst.h"
#include "daqiri/file_write.h"
#include "daqiri/status.h"
#include "net/link_layer.h"

namespace daqiri {

// All of these throw Error before any file is touched: INVALID_PARAMETER when `directory` is not
// absolute or does not exist, when `prefix` is empty or has a slash, and when packets of the burst
// were freed or counted beyond what it holds; NOT_SUPPORTED for packets in device memory.

/// Append the burst to <directory>/<prefix>.pcap, which is created when missing. Record times are
/// the packets' timestamps, time of writing where these are 0. Link type and reconstructed headers
/// are those of the burst's port. Throws Error also with INVALID_PARAMETER for an existing file of
/// another kind (it stays as it was), NOT_READY while somebody else writes to the file,
/// GENERIC_FAILURE with path and errno for a failed write (the file is cut to whole records).
FileWriteStatus write_pcap(const Burst& burst, const std::string& directory,
                           const std::string& prefix, bool nanosecond = false);

/// Write each packet to <directory>/<prefix>_<index>, truncated, without its first
/// `packet_data_offset` bytes (over all segments; an offset beyond the packet leaves an empty
/// file). Throws Error also with GENERIC_FAILURE with path and errno for a failed write: files
/// before that packet are whole, its own is removed, the rest are not written.
FileWriteStatus write_raw(const Burst& burst, const std::string& directory,
                          const std::string& prefix, std::uint64_t packet_data_offset = 0);

/// As write_pcap and write_raw, on the process's file thread. The burst may be released, and must
/// not be changed, before the handle is done. Throw Error for the arguments, as above, and
/// NO_SPACE_AVAILABLE when MAX_PENDING_FILE_WRITES wait already; what goes wrong with the files is
/// in the handle.
std::unique_ptr<FileWriteHandle> start_write_pcap(Burst& burst, const std::string& directory,
                                                  const std::string& prefix,
                                                  bool nanosecond = false);
std::unique_ptr<FileWriteHandle> start_write_raw(Burst& burst, const std::string& directory,
                                                 const std::string& prefix,
                                                 std::uint64_t packet_data_offset = 0);

inline constexpr std::size_t MAX_PENDING_FILE_WRITES = 1024;

/// Link layer of the burst's port; Ethernet for a burst that belongs to none.
const LinkLayer& link_layer_of(const Burst& burst) noexcept;

/// Progress of one write, set by the thread that writes.
struct FileWriteProgress {
  std::atomic<std::uint64_t> completed_packets{0};
  std::atomic<std::uint64_t> failed_packets{0};
  std::atomic<std::uint64_t> bytes_written{0};
  [[nodiscard]] FileWriteStatus counts() const noexcept;
};

struct FileWriteJob;

/// A write in the background.
class FileWriteHandle {
 public:
  explicit FileWriteHandle(std::shared_ptr<FileWriteJob> job) : job_(std::move(job)) {}
  FileWriteHandle(const FileWriteHandle&) = delete;
  FileWriteHandle& operator=(const FileWriteHandle&) = delete;
  /// Waits.
  ~FileWriteHandle();

  [[nodiscard]] bool done() const noexcept;
  /// Wait until done, for at most `timeout_ns` (negative: no limit). Returns done().
  bool wait(std::int64_t timeout_ns = -1) noexcept;
  /// So far; final when done.
  [[nodiscard]] FileWriteStatus counts() const noexcept;
  /// NOT_READY until done, then what write_pcap or write_raw would have thrown, or SUCCESS.
  [[nodiscard]] Status status() const noexcept;
  /// Text of the error; empty: none.
  [[nodiscard]] std::string error() const;

 private:
  std::shared_ptr<FileWriteJob> job_;
};

}  // namespace daqiri
