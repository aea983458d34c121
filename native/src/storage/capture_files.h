/// The files of one recording, one after the other.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "session/session.h"
#include "storage/capture_metadata.h"
#include "storage/packet_writer.h"
#include "storage/recorder.h"
#include "system/file.h"
#include "system/log.h"
#include "timing/clock.h"

namespace daqiri {

/// Why a recorder did not write a packet that it took from its queue. The first is a loss.
enum class NotWritten : std::uint8_t { WRITE_ERROR, PAUSED, AFTER_LIMIT };
inline constexpr std::size_t NUM_NOT_WRITTEN = 3;

/// The metadata file beside a recorded file. It is written in one piece when the recorded file is
/// complete; disk space for it is taken when that is prepared, so that a full disk does not cost
/// the metadata. Until then it is hidden and locked: `.NAME.json.part`.
class Sidecar {
 public:
  Sidecar() = default;
  Sidecar(Sidecar&&) = default;
  Sidecar& operator=(Sidecar&& other) noexcept;
  ~Sidecar() { abandon(); }

  /// Take space for `size` bytes beside the file `path`. Throws Error: INVALID_PARAMETER when
  /// another recorder has that file, GENERIC_FAILURE with path and errno.
  void begin(const std::string& path, std::size_t size);
  /// <path>.json is there, whole, or Error is thrown and it is not; `durable`: once the disk has
  /// it.
  void finish(const std::string& text, bool durable);
  /// Leave nothing behind.
  void abandon() noexcept;

 private:
  std::string path_;
  std::string part_path_;
  File part_;
};

/// Tidies up what recorders that were killed have left in `directory`: their hidden files, and the
/// disk blocks behind the files that these belong to. What those hold stays as it is.
void remove_leftovers(const std::string& directory) noexcept;

/// Numbers, rolls and completes files, and keeps account of what did not get into them. One thread.
class CaptureFiles {
 public:
  CaptureFiles(const RecorderOptions& options, const Session& session, RxQueue& queue);

  /// Create the first file. Throws Error.
  void begin();
  /// Put the first `count` packets into files, rolling as asked for; those that do not get there
  /// are counted as lost, and `error` tells why.
  void write(const Burst& burst, std::uint32_t count);
  /// Complete the current file, or an empty one when there is none. It stays the current one while
  /// the next cannot be prepared: there is always a file whose metadata tell what is lost.
  void complete();
  /// Complete what is to be completed at the end of a recording.
  void finish();
  /// Roll by time; see that the file is still there and not far behind; try again after an error.
  /// Returns CLOCK_MONOTONIC ns when it is to be called again at the latest.
  std::uint64_t poll(std::uint64_t now_ns);

  void leave_out(NotWritten reason, std::uint64_t packets) noexcept;

  /// Whether anything was completed by limits since the last call of this.
  bool take_rolled() noexcept { return std::exchange(rolled_, false); }
  /// There is a file that is not complete.
  [[nodiscard]] bool has_file() const noexcept { return has_file_; }
  /// The first error; empty: none.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] bool failing() const noexcept { return failing_; }
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
  [[nodiscard]] std::uint64_t left_out() const noexcept { return left_out_; }
  [[nodiscard]] const std::string& writer_name() const noexcept { return origin_.writer; }

 private:
  [[nodiscard]] FileTally current() const noexcept {
    return has_file_ ? writer_->tally() : FileTally{};
  }
  [[nodiscard]] std::unique_ptr<PacketWriter> make_writer();
  [[nodiscard]] std::uint64_t size_limit() const noexcept;
  [[nodiscard]] bool is_full() const noexcept;
  [[nodiscard]] std::string next_path() const;
  /// Whether there is a file to write to, after trying to have one.
  bool ready();
  bool retry_is_due() const noexcept {
    return options_.on_error == OnError::RESUME && monotonic_ns() >= retry_at_;
  }
  /// Go on after an error: in the same file while that is empty, else in the next.
  bool recover();
  /// Throw Error.
  void prepare_next();
  void begin_next();
  bool try_begin();
  bool is_taken(const Error& error);
  void complete_present(bool last);
  [[nodiscard]] CaptureMetadata metadata() const;
  [[nodiscard]] LogOrigin log_origin() const noexcept {
    return {interface_, queue_.config().name_};
  }
  void lose(std::uint64_t packets) noexcept;
  /// The writer failed; its file had `packets` before.
  void note_failure(std::uint64_t packets);
  void fail(const std::string& text);
  void forget_file(const std::string& text);
  void sync_directory();

  RecorderOptions options_;
  RxQueue& queue_;
  std::string interface_;
  std::shared_ptr<const LinkLayer> link_;
  CaptureOrigin origin_;
  std::unique_ptr<PacketWriter> writer_;
  Sidecar sidecar_;
  Sidecar next_sidecar_;
  bool prepared_{false};
  std::uint64_t number_;
  std::uint64_t roll_ns_;
  /// Open or failed.
  bool has_file_{false};
  bool rolled_{false};
  bool failing_{false};
  std::string error_;
  /// CLOCK_MONOTONIC ns of the current file's first packet; 0: none yet.
  std::uint64_t first_written_ns_{0};
  std::uint64_t sync_at_{0};
  std::uint64_t retry_at_{0};
  /// CLOCK_REALTIME.
  std::uint64_t begun_ns_{0};
  FileTally before_;
  std::uint64_t lost_{0};
  std::uint64_t left_out_{0};
  /// Since the file before was complete.
  std::array<std::uint64_t, NUM_NOT_WRITTEN> not_written_{};
  RxSnapshot counters_before_;
  std::vector<RecordedFile> completed_;
};

}  // namespace daqiri
