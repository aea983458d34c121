/// Writes bursts to files, synchronously or in the background with a handle.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "burst/burst.h"
#include "daqiri/file_write.h"
#include "net/link_layer.h"
#include "storage/write_outcome.h"

namespace daqiri {

// All of these throw Error before any file is changed: INVALID_PARAMETER if `directory` is not
// absolute or does not exist, if `prefix` is empty or contains a slash, or if packets of the burst
// were freed or counted beyond what it holds; NOT_SUPPORTED for packets in device memory.

/// Append the burst to <directory>/<prefix>.pcap, which is created if missing. Record times are the
/// packets' timestamps, or the time of writing if these are 0. Link type and reconstructed headers
/// are those of the burst's port; a burst for transmission gets its position in its byte stream.
/// Also throws Error INVALID_PARAMETER for an existing file of another type (it is not changed),
/// NOT_READY while another writer has the file, GENERIC_FAILURE with path and errno for a failed
/// write (the file is cut to whole records).
FileWriteStatus write_pcap(Burst& burst, const std::string& directory, const std::string& prefix,
                           bool nanosecond = false);

/// Write each packet to <directory>/<prefix>_<index>, which is truncated first, without the
/// packet's first `packet_data_offset` bytes (over all segments; an offset beyond the packet leaves
/// an empty file). Also throws Error GENERIC_FAILURE with path and errno for a failed write: files
/// of earlier packets are complete, the failed file is removed, and the rest are not written.
FileWriteStatus write_raw(const Burst& burst, const std::string& directory,
                          const std::string& prefix, std::uint64_t packet_data_offset = 0);

/// Like write_pcap and write_raw, on the process's file thread. Before the handle is done, the
/// burst may be released, but must not be changed. Throw Error for the arguments, as above, and
/// NO_SPACE_AVAILABLE if MAX_PENDING_FILE_WRITES are waiting already; the handle reports errors of
/// the files.
std::shared_ptr<FileWriteHandle> start_write_pcap(Burst& burst, const std::string& directory,
                                                  const std::string& prefix,
                                                  bool nanosecond = false);
std::shared_ptr<FileWriteHandle> start_write_raw(Burst& burst, const std::string& directory,
                                                 const std::string& prefix,
                                                 std::uint64_t packet_data_offset = 0);

inline constexpr std::size_t MAX_PENDING_FILE_WRITES = 1024;

/// Throws Error unless the burst holds every packet that it counts, with its bytes readable by the
/// CPU: through `Burst::on_host`, also if they are in GPU memory. `action` is what is done with
/// them: "written to a file".
void require_packets(const Burst& burst, std::string_view action);

/// Link layer of the burst's port; Ethernet for a burst without a port.
const LinkLayer& link_layer_of(const Burst& burst) noexcept;

/// Progress of one write, updated by the writing thread.
struct FileWriteProgress {
  std::atomic<std::uint32_t> completed_packets{0};
  std::atomic<std::uint32_t> failed_packets{0};
  std::atomic<std::uint64_t> bytes_written{0};
  /// Count failed packets as completed.
  void add(std::uint32_t packets) noexcept {
    completed_packets += packets;
    failed_packets -= packets;
  }
  [[nodiscard]] FileWriteStatus counts() const noexcept {
    return {completed_packets.load(), failed_packets.load(), bytes_written.load()};
  }
};

/// A write in the background. The file thread shares it, so that waiting for it is optional.
///
/// Its status is the one that write_pcap or write_raw would have thrown (GENERIC_FAILURE for a file
/// that stayed locked).
class FileWriteHandle : public WriteOutcome {
 public:
  /// Throws Error; NOT_READY: the file is locked, try again.
  using Work = std::function<void(FileWriteProgress&)>;

  /// `target`: writes to the same target are done in order. `burst` is held until it is written.
  FileWriteHandle(Burst& burst, std::string target, Work work)
      : target_(std::move(target)), work_(std::move(work)), hold_(std::in_place, burst) {}

  /// The current counts; final after the write is done.
  [[nodiscard]] FileWriteStatus counts() const noexcept { return progress_.counts(); }

 private:
  friend class FileThread;
  /// Returns false if the file is locked: try again.
  bool attempt() noexcept;

  std::string target_;
  Work work_;
  FileWriteProgress progress_;
  /// Keeps the burst until it is written, even if its session is closed.
  std::optional<BurstHold> hold_;
  /// CLOCK_MONOTONIC ns; 0: not tried yet.
  std::uint64_t give_up_at_{0};
};

}  // namespace daqiri
