/// The files of one recording, one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session/session.h"
#include "storage/capture_metadata.h"
#include "storage/record_writer.h"
#include "storage/recorder_options.h"
#include "storage/recording_source.h"
#include "system/log.h"
#include "timing/clock.h"

namespace daqiri {

/// A file that is complete on disk.
struct RecordedFile : FileTally {
  std::string path;
  /// Records that the source or the recorder lost since the file before was complete.
  std::uint64_t dropped{0};
  /// Records that were left out on request in that time: filtered, flushed, paused, before the
  /// start, behind the limit.
  std::uint64_t left_out{0};
};

class Sidecar;

/// Numbers, rolls and completes files, and keeps account of what did not get into them. One thread.
class CaptureFiles {
 public:
  /// Tidies the directory up and creates the first file. Throws Error.
  CaptureFiles(const RecorderOptions& options, const Session& session, RecordingSource& source);
  ~CaptureFiles();

  /// Put records [first, end) into files, rolling as asked for; those that do not get there are
  /// counted as lost, and `error` tells why.
  void write(Burst& burst, std::uint32_t first, std::uint32_t end);
  /// Frames are `lossy` by what is lost from now on: `lost` is what the source had lost by now.
  void tell_losses_after(std::uint64_t lost) noexcept {
    lost_told_ = lost + not_written_[CaptureLosses::WRITE_ERROR];
  }
  /// Complete the current file, or an empty one when there is none, unless limits have completed
  /// one since the last call of this: an empty one behind it would tell nothing. A file stays the
  /// current one while the next cannot be prepared: there is always one whose metadata tell what is
  /// lost.
  void complete();
  /// Complete what is to be completed at the end of a recording.
  void finish();
  /// What was written can be read by others. Returns whether it can.
  bool flush();
  /// Forget records of the current file behind the first `records`; returns how many these were.
  /// Throws Error INVALID_PARAMETER when it has less, GENERIC_FAILURE.
  std::uint64_t rewind(std::uint64_t records);
  /// Complete the current file with its first `records`; the others are the first of the next.
  /// Throws as `rewind`; the file is as it was when the next one cannot be prepared.
  void split(std::uint64_t records);
  /// Roll by time; see that the file is still there and not far behind; try again after an error.
  /// Returns CLOCK_MONOTONIC ns when it is to be called again at the latest.
  std::uint64_t poll(std::uint64_t now_ns);
  /// So many records are not put into files.
  void leave_out(CaptureLosses::Reason reason, std::uint64_t records) noexcept {
    not_written_[reason] += records;
  }

  /// The first error; empty: none.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] bool failing() const noexcept { return failing_; }
  /// The current file; empty: there is none.
  [[nodiscard]] std::string_view path() const noexcept {
    return has_file_ ? std::string_view(writer_->path()) : std::string_view();
  }
  /// Complete files that nobody has taken yet.
  std::vector<RecordedFile> take_completed() { return std::exchange(completed_, {}); }
  [[nodiscard]] bool any_completed() const noexcept { return !completed_.empty(); }
  /// In files, the current one included, of which others can read `flushed` records; `lost` and
  /// `left_out` are in none.
  struct Counts {
    std::uint64_t records;
    std::uint64_t bytes;
    std::uint64_t lost;
    std::uint64_t left_out;
    std::uint64_t packets;
    std::uint64_t frames;
    std::uint64_t missing;
    std::uint64_t flushed;
  };
  [[nodiscard]] Counts counts() const noexcept {
    const FileTally now = has_file_ ? writer_->tally() : FileTally{};
    return {records_before_ + (has_file_ ? writer_->records() : 0),
            before_.bytes + now.bytes,
            not_written_[CaptureLosses::WRITE_ERROR],
            std::accumulate(not_written_.begin() + 1, not_written_.end(), std::uint64_t{0}),
            before_.packets + now.packets,
            before_.frames + now.frames,
            before_.missing + now.missing,
            has_file_ ? writer_->flushed() : 0};
  }
  [[nodiscard]] const std::string& writer_name() const noexcept { return origin_.writer; }
  /// After `finish`: records that were lost and are in no file's metadata, which could not be
  /// written.
  [[nodiscard]] std::uint64_t unreported() const noexcept { return unreported_; }

  /// Leave nothing of what was begun.
  void discard() noexcept;

 private:
  [[nodiscard]] std::unique_ptr<RecordWriter> make_writer() const;
  [[nodiscard]] std::string next_path() const;
  /// Whether there is a file to write to, after trying to have one.
  bool ready();
  bool retry_is_due() const noexcept {
    return options_.on_error == OnError::RESUME && monotonic_ns() >= retry_at_;
  }
  /// Go on after an error: in the same file while that is empty, else in the next.
  bool recover();
  /// Remove the current file, which has no records and cannot have any, to create it again. It
  /// stays while there is no room for another one.
  void remove_empty();
  /// Throws Error.
  void begin_next();
  bool try_begin();
  /// How many the current file has. Throws Error INVALID_PARAMETER when it is less than `records`.
  [[nodiscard]] std::uint64_t require_records(std::uint64_t records) const;
  /// Do `step` with the number that is next; with the one behind that where a file has it.
  template <typename Step>
  void with_free_number(Step&& step);
  void prepare_number();
  /// What limits ask for.
  void roll();
  /// Returns whether the metadata of a file tell what was lost until now.
  bool complete_present(bool last);
  /// Whether the current file was removed; it is no longer current then.
  bool is_gone();
  [[nodiscard]] CaptureLosses losses() const { return {source_.counters(), not_written_}; }
  [[nodiscard]] CaptureMetadata metadata(const CaptureLosses& now) const {
    return describe(origin_, writer_->tally(), begun_ns_, losses_before_, now);
  }
  void log_about(LogLevel level, const std::string& text) const;
  /// The writer failed; its file had `records` before.
  void note_failure(std::uint64_t records);
  void fail(const std::string& text);
  void forget_file(const std::string& text);

  RecordingSource& source_;
  CaptureOrigin origin_;
  const RecorderOptions& options_{origin_.options};
  std::unique_ptr<RecordWriter> writer_;
  /// Of the file that is open; of the next one, once that is prepared.
  std::unique_ptr<Sidecar> sidecar_;
  std::unique_ptr<Sidecar> next_sidecar_;
  std::uint64_t number_;
  /// Bytes of a file that is full, and its age in ns (0: no limit).
  std::uint64_t roll_size_;
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
  /// CLOCK_REALTIME; 0: the recording has not begun.
  std::uint64_t begun_ns_{0};
  /// In files that are complete.
  FileTally before_;
  std::uint64_t records_before_{0};
  decltype(CaptureLosses::not_written) not_written_{};
  /// When the file before was complete.
  CaptureLosses losses_before_;
  std::uint64_t unreported_{0};
  /// Frames that the source and the recorder had lost before the latest frame.
  std::uint64_t lost_told_{0};
  std::vector<RecordedFile> completed_;
};

}  // namespace daqiri
