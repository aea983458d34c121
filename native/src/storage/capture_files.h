/// The files of one recording, one after the other.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "metrics/counters.h"
#include "storage/pcap_writer.h"
#include "storage/recorder.h"
#include "storage/sidecar.h"

namespace daqiri {

/// Why a recorder did not write a packet that it took from its queue.
enum class LostBy : std::uint8_t { WRITE_ERROR, PAUSED, AFTER_LIMIT };
inline constexpr std::size_t NUM_LOST_BY = 3;

/// Numbers, rolls and completes files, and keeps account of what did not get into them. One thread.
class CaptureFiles {
 public:
  CaptureFiles(const RecorderOptions& options, RxQueue& queue, std::string queue_name,
               std::shared_ptr<const LinkLayer> link);

  /// See to whole records after a kill, from the thread that writes from now on.
  void guard() noexcept;
  /// To be called in that thread before it ends.
  void end_guard() noexcept { guard_.stop(); }

  /// Create the next file. Throws Error.
  void begin();
  /// Put the first `count` packets into files, rolling as asked for. Returns how many got there;
  /// fewer after an error, which is in `error`.
  std::uint32_t write(const Burst& burst, std::uint32_t count);
  /// Complete the current file, or an empty one when there is none.
  void complete();
  /// Complete what is to be completed at the end of a recording.
  void finish();
  /// Roll by time; see that the file is still there. Returns CLOCK_MONOTONIC ns when it is to be
  /// called again at the latest.
  std::uint64_t tend(std::uint64_t now_ns);

  void lose(LostBy reason, std::uint64_t packets) noexcept;

  /// Whether anything was completed by limits since the last call of this.
  bool take_rolled() noexcept { return std::exchange(rolled_, false); }
  /// There is a file that is not complete.
  [[nodiscard]] bool has_file() const noexcept { return has_file_; }
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] bool failed() const noexcept { return !error_.empty(); }
  /// Complete files that nobody has taken yet.
  std::vector<RecordedFile> take_completed() { return std::exchange(completed_, {}); }
  [[nodiscard]] bool any_completed() const noexcept { return !completed_.empty(); }
  [[nodiscard]] std::uint64_t packets() const noexcept {
    return before_.packets + current().packets;
  }
  [[nodiscard]] std::uint64_t wire_bytes() const noexcept {
    return before_.wire_bytes + current().wire_bytes;
  }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }

 private:
  [[nodiscard]] PcapTally current() const noexcept {
    return has_file_ ? writer_.tally() : PcapTally{};
  }
  [[nodiscard]] bool is_full() const noexcept;
  [[nodiscard]] CaptureMetadata metadata() const;
  void fail(const std::string& text);
  void forget_file(const std::string& text);

  RecorderOptions options_;
  RxQueue& queue_;
  std::string queue_name_;
  std::shared_ptr<const LinkLayer> link_;
  PcapFormat format_;
  TailGuard guard_;
  PcapWriter writer_{&guard_};
  Sidecar sidecar_;
  std::uint64_t number_;
  std::uint64_t roll_ns_;
  /// Open or failed.
  bool has_file_{false};
  bool rolled_{false};
  /// CLOCK_MONOTONIC ns of the current file's first packet; 0: none yet.
  std::uint64_t first_written_ns_{0};
  std::string error_;
  PcapTally before_;
  std::uint64_t lost_{0};
  /// Since the file before was complete.
  std::array<std::uint64_t, NUM_LOST_BY> lost_by_{};
  DropCounts queue_drops_before_{};
  std::vector<RecordedFile> completed_;
};

}  // namespace daqiri
