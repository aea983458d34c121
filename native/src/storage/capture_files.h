/// The files of one recording, in sequence.
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
  /// Records that the source or the recorder lost since the previous file was complete.
  std::uint64_t dropped{0};
  /// Records omitted on request in that time: filtered, flushed, paused, before the start, after
  /// the limit.
  std::uint64_t left_out{0};
  /// Packets that the host lost before the engine in that time.
  std::uint64_t lost_before_engine{0};
};

class Sidecar;

/// Numbers, rolls and completes files, and counts the records that are in none. One thread.
class CaptureFiles {
 public:
  /// Removes leftovers from the directory and creates the first file. Throws Error.
  CaptureFiles(const RecorderOptions& options, const Session& session, RecordingSource& source);
  ~CaptureFiles();

  /// Report this in the metadata of later files, and in those of the current file if its run is not
  /// known.
  void describe(const RunMetadata& metadata);
  /// Write records [first, end) to files and roll as configured. Records that cannot be written
  /// count as lost, and `error` returns the reason.
  void write(Burst& burst, std::uint32_t first, std::uint32_t end);
  /// Write `count` frames of which no packet came; see RecordWriter::write_absent. Those that
  /// cannot be written are not counted, since the source has counted them.
  void write_absent(const Burst& next, std::uint64_t before, std::uint64_t count);
  /// Mark frames as `lossy` from now on only for further losses; `lost`: losses of the source so
  /// far.
  void tell_losses_after(std::uint64_t lost) noexcept {
    lost_told_ = lost + not_written_[CaptureLosses::WRITE_ERROR];
  }
  /// Complete the current file, or an empty one if there is none. Not if limits have completed a
  /// file since the last call: an empty file after it would contain no information. A file stays
  /// the current one until the next can be prepared, so that there is always a file whose metadata
  /// report losses.
  void complete();
  /// Complete the files at the end of a recording.
  void finish();
  /// Put records into the current file that its writer holds back. Returns whether none of them
  /// was lost.
  bool put_held_back();
  /// Make written records readable by other processes. Returns whether this succeeded.
  bool flush();
  /// Discard records of the current file after the first `records`; returns their number. Throws
  /// Error INVALID_PARAMETER if the file has fewer, GENERIC_FAILURE.
  std::uint64_t rewind(std::uint64_t records);
  /// Complete the current file with its first `records`; the others begin the next file. Throws
  /// like `rewind`; if the next file cannot be prepared, the current one is not changed.
  void split(std::uint64_t records);
  /// Roll by time; check that the file still exists; flush it regularly; retry after an error.
  /// Returns the latest time of the next call, CLOCK_MONOTONIC ns.
  std::uint64_t poll(std::uint64_t now_ns);
  /// Fail, and do not retry until this is called with an empty reason.
  void refuse(std::string reason);
  /// Count records that are not written to files.
  void leave_out(CaptureLosses::Reason reason, std::uint64_t records) noexcept {
    not_written_[reason] += records;
  }

  /// The first error; empty: none.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] bool failing() const noexcept { return failing_; }
  /// Path of the current file; empty: there is none.
  [[nodiscard]] std::string_view path() const noexcept {
    return has_file_ ? std::string_view(writer_->path()) : std::string_view();
  }
  /// Return complete files that were not returned before.
  std::vector<RecordedFile> take_completed() { return std::exchange(completed_, {}); }
  [[nodiscard]] bool any_completed() const noexcept { return !completed_.empty(); }
  /// Records in files, including the current one, of which other processes can read `flushed`;
  /// `lost` and `left_out` are in no file. `gone`: records that others could read, in files that
  /// were removed.
  struct Counts {
    std::uint64_t records;
    std::uint64_t bytes;
    std::uint64_t lost;
    std::uint64_t left_out;
    std::uint64_t packets;
    std::uint64_t frames;
    std::uint64_t missing;
    std::uint64_t flushed;
    std::uint64_t gone;
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
            has_file_ ? writer_->flushed() : 0,
            gone_};
  }
  [[nodiscard]] const std::string& writer_name() const noexcept { return origin_.writer; }
  /// After `finish`: lost records that no file's metadata report, because the metadata could not be
  /// written.
  [[nodiscard]] std::uint64_t unreported() const noexcept { return unreported_; }

  /// Remove everything that was begun.
  void discard() noexcept;

 private:
  [[nodiscard]] std::unique_ptr<RecordWriter> make_writer() const;
  [[nodiscard]] std::string next_path() const;
  /// Let `write` write records to the present file, at most as many as it is told, until `count`
  /// are written, and roll as configured. Returns how many were.
  template <typename Write>
  std::uint64_t write_to_files(std::uint64_t count, Write&& write);
  /// Whether there is a file to write to; tries to create one.
  bool ready();
  bool retry_is_due() const noexcept {
    return options_.on_error == OnError::RESUME && refusal_.empty() && monotonic_ns() >= retry_at_;
  }
  /// Continue after an error: in the same file if it is empty, otherwise in the next.
  bool recover();
  /// Remove the current file, which has no records and cannot get any, to create it again. The file
  /// stays if there is no space for another one.
  void remove_empty();
  /// Throws Error.
  void begin_next();
  bool try_begin();
  /// Number of records in the current file. Throws Error INVALID_PARAMETER if it is below
  /// `records`.
  [[nodiscard]] std::uint64_t require_records(std::uint64_t records) const;
  /// Call `step` with the next number; skip numbers for which a file exists.
  template <typename Step>
  void with_free_number(Step&& step);
  void prepare_number();
  /// Roll because a limit is reached.
  void roll();
  /// Returns whether the metadata of a file report all losses until now.
  bool complete_present(bool last);
  /// Whether the current file was removed; if so, it is no longer the current one.
  bool is_gone();
  /// `max_age`: see PortIo::losses.
  [[nodiscard]] CaptureLosses losses(std::uint64_t max_age) const {
    return {source_.counters(), session_.losses(ports_, max_age), not_written_};
  }
  [[nodiscard]] CaptureMetadata metadata(const CaptureLosses& now) const {
    return daqiri::describe(origin_, run_, writer_->tally(), begun_ns_, losses_before_, now);
  }
  void log_about(LogLevel level, const std::string& text) const;
  /// The writer failed; its file had `records` before.
  void note_failure(std::uint64_t records);
  void fail(const std::string& text);
  void forget_file(const std::string& text);

  RecordingSource& source_;
  const Session& session_;
  std::vector<int> ports_;
  CaptureOrigin origin_;
  const RecorderOptions& options_{origin_.options};
  std::unique_ptr<RecordWriter> writer_;
  /// Run and detector of the current file, and of the next.
  RunMetadata run_{options_.metadata};
  RunMetadata next_run_{options_.metadata};
  /// Of the open file; of the next one, after it is prepared.
  std::unique_ptr<Sidecar> sidecar_;
  std::unique_ptr<Sidecar> next_sidecar_;
  std::uint64_t number_;
  /// Bytes of a full file, and its largest age in ns (0: no limit).
  std::uint64_t roll_size_;
  std::uint64_t roll_ns_;
  /// Whether there is a current file, open or failed.
  bool has_file_{false};
  bool rolled_{false};
  bool failing_{false};
  std::string refusal_;
  std::string error_;
  /// CLOCK_MONOTONIC ns of the current file's first packet; 0: none yet.
  std::uint64_t first_written_ns_{0};
  std::uint64_t sync_at_{0};
  std::uint64_t retry_at_{0};
  /// CLOCK_REALTIME; 0: the recording has not begun.
  std::uint64_t begun_ns_{0};
  /// Totals of complete files.
  FileTally before_;
  std::uint64_t records_before_{0};
  std::uint64_t gone_{0};
  decltype(CaptureLosses::not_written) not_written_{};
  /// Losses when the previous file was complete.
  CaptureLosses losses_before_;
  std::uint64_t unreported_{0};
  /// Frames that the source and the recorder had lost before the latest frame.
  std::uint64_t lost_told_{0};
  std::vector<RecordedFile> completed_;
};

}  // namespace daqiri
