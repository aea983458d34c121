/// Writes bursts to files, synchronously or in the background with a handle.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

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
/// are those of the burst's port; a burst to transmit gets its place in its byte stream. Throws
/// Error also with INVALID_PARAMETER for an existing file of another kind (it stays as it was),
/// NOT_READY while somebody else writes to the file, GENERIC_FAILURE with path and errno for a
/// failed write (the file is cut to whole records).
FileWriteStatus write_pcap(Burst& burst, const std::string& directory, const std::string& prefix,
                           bool nanosecond = false);

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
std::shared_ptr<FileWriteHandle> start_write_pcap(Burst& burst, const std::string& directory,
                                                  const std::string& prefix,
                                                  bool nanosecond = false);
std::shared_ptr<FileWriteHandle> start_write_raw(Burst& burst, const std::string& directory,
                                                 const std::string& prefix,
                                                 std::uint64_t packet_data_offset = 0);

inline constexpr std::size_t MAX_PENDING_FILE_WRITES = 1024;

/// Link layer of the burst's port; Ethernet for a burst that belongs to none.
const LinkLayer& link_layer_of(const Burst& burst) noexcept;

/// Progress of one write, set by the thread that writes.
struct FileWriteProgress {
  std::atomic<std::uint32_t> completed_packets{0};
  std::atomic<std::uint32_t> failed_packets{0};
  std::atomic<std::uint64_t> bytes_written{0};
  /// So many of the failed are complete.
  void add(std::uint32_t packets) noexcept {
    completed_packets += packets;
    failed_packets -= packets;
  }
  [[nodiscard]] FileWriteStatus counts() const noexcept {
    return {completed_packets.load(), failed_packets.load(), bytes_written.load()};
  }
};

/// A write in the background. The file thread shares it: nobody has to wait for it.
class FileWriteHandle {
 public:
  /// Throws Error; NOT_READY: the file is locked, try again.
  using Work = std::function<void(FileWriteProgress&)>;

  /// `target`: writes to the same one are done in their order. `burst` is held until it is written.
  FileWriteHandle(Burst& burst, std::string target, Work work)
      : target_(std::move(target)), work_(std::move(work)), hold_(std::in_place, burst) {}
  FileWriteHandle(const FileWriteHandle&) = delete;
  FileWriteHandle& operator=(const FileWriteHandle&) = delete;

  [[nodiscard]] bool done() const noexcept { return status() != Status::NOT_READY; }
  /// Wait until done, for at most `timeout_ns` (negative: no limit). Returns done().
  bool wait(std::int64_t timeout_ns = -1) noexcept;
  /// So far; final when done.
  [[nodiscard]] FileWriteStatus counts() const noexcept { return progress_.counts(); }
  /// NOT_READY until done, then what write_pcap or write_raw would have thrown (GENERIC_FAILURE for
  /// a file that stayed locked), or SUCCESS.
  [[nodiscard]] Status status() const noexcept { return status_.load(std::memory_order_acquire); }
  /// Text of the error; empty: none.
  [[nodiscard]] std::string error() const { return done() ? error_ : std::string(); }

 private:
  friend class FileThread;
  /// False: the file is locked, to be tried again.
  bool attempt() noexcept;

  std::string target_;
  Work work_;
  FileWriteProgress progress_;
  /// Keeps the burst until it is written, whatever becomes of its session.
  std::optional<BurstHold> hold_;
  /// CLOCK_MONOTONIC ns; 0: not tried yet.
  std::uint64_t give_up_at_{0};
  /// Set before `status_`.
  std::string error_;
  std::atomic<Status> status_{Status::NOT_READY};
  std::mutex mutex_;
  std::condition_variable ended_;
};

}  // namespace daqiri
