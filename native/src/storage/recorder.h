/// Records a receive queue, or the frames of a reorder plan, to rolling files on a separate thread.
/// A record is a packet or a frame.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "metrics/counters.h"
#include "session/session.h"
#include "storage/capture_files.h"
#include "storage/recorder_group.h"
#include "storage/recorder_options.h"
#include "storage/recording_source.h"
#include "system/doorbell.h"

namespace daqiri {

struct RecorderSnapshot {
  /// In files: packets, and their bytes on the wire; for frames, their packets and the bytes of
  /// frames. Includes records that are not `flushed`.
  std::uint64_t packets{0};
  std::uint64_t bytes{0};
  /// Complete files.
  std::uint64_t files{0};
  /// Records taken from the source and lost after an error.
  std::uint64_t dropped{0};
  /// Records taken from the source and omitted: while paused, before `start_flow`, beyond
  /// `max_packets`.
  std::uint64_t left_out{0};
  bool running{false};
  /// Whether records currently cannot be written to a file.
  bool failing{false};
  /// First error, with path and errno text; empty: none.
  std::string error;
  /// Records lost by the source or the recorder that no file's metadata report; known after the
  /// end.
  std::uint64_t unreported{0};
  /// Whether it ended at `max_packets` or after `max_seconds`.
  bool limit_reached{false};
  /// Frames in files, and their missing packets.
  std::uint64_t frames{0};
  std::uint64_t missing{0};
  /// Records of the current file that other processes can read now.
  std::uint64_t flushed{0};
  /// Frames of the completed acquisition; 0: none is complete.
  std::uint64_t acquired{0};
  /// Number of completed acquisitions.
  std::uint64_t acquisitions{0};
  /// Path of the current file; empty: there is none.
  std::string path;
};

/// Reception never waits for the recorder's files. After an error (disk full, directory removed),
/// the file is cut to whole records, and later records are taken from the queue and counted as lost
/// (`write_error`). The file stays the current one, so that its metadata report these losses, until
/// the recorder ends (OnError::STOP) or continues: with OnError::RESUME it retries every half
/// second, in the same file if it is empty, otherwise in a new one. For the same reason, a file is
/// completed only after the next one was prepared. A recorder ends when stopped, at `max_packets`,
/// after `max_seconds`, and when the queue is closed and empty. A child process that is forked in
/// the meantime does not use it.
class Recorder {
 public:
  /// Attaches to the source, creates the first file and starts. Throws Error (INVALID_PARAMETER for
  /// the options and for a file that exists, NOT_READY if the source is in use, GENERIC_FAILURE
  /// with path and errno for the file).
  Recorder(const std::shared_ptr<Session>& session, RxQueue& queue, const RecorderOptions& options);
  Recorder(const std::shared_ptr<Session>& session, reorder::RunningPlan& plan,
           const RecorderOptions& options);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder() { stop(); }

  /// Of this many images, none is told from numbers that begin anew.
  static constexpr std::uint64_t MOST_ABSENT = std::uint64_t{1} << 20U;

  /// Record what the queue has delivered until now, complete the current file, end the thread.
  /// Idempotent; any thread.
  void stop() noexcept;
  /// Record what the queue has delivered until now and complete the current file; returns when it
  /// is in `files`. The next file appears with its first packet, or empty with the next roll, so
  /// that there is at least one file between two rolls. Throws Error NOT_READY if the recorder has
  /// ended, GENERIC_FAILURE with its first error while it is failing.
  void roll();
  /// While paused, packets are taken from the queue and discarded, counted as omitted (`paused` in
  /// the file's metadata), and the clock of `max_seconds` stops; files stay valid.
  void set_paused(bool paused);
  /// Report this run and detector in later files, and in the current one if its run is not known;
  /// returns when this is done. No effect after the end. Throws Error INVALID_PARAMETER.
  void describe(RunMetadata metadata);
  /// Treat files as on a full disk until this is called with an empty reason, which is the error
  /// otherwise. Any thread; takes effect within 0.1 s.
  void refuse(std::string reason);
  /// Let `max_seconds`, its own or its group's, end this long from now. Throws Error.
  void end_in(double seconds);
  /// Record exactly the next `frames` images (0: all) whose first packet arrives from now on. Row i
  /// is image i, counted by their numbers from `first`, or from the first one that comes: those
  /// that did not come are rows of fill value, unless more than MOST_ABSENT in a row are absent
  /// where all are recorded. The snapshot shows when they are in the file and readable by other
  /// processes. Ends the previous acquisition. Returns the number of frames that the source had
  /// lost before. Throws Error INVALID_PARAMETER unless the recorder is `held`, or if the plan has
  /// no such number; NOT_READY if it has ended.
  std::uint64_t acquire(std::uint64_t frames, std::optional<std::uint64_t> first = std::nullopt);
  /// Discard the current file's frames after the first `frames`, and end the acquisition; returns
  /// when this is done. Discarded frames count as omitted (`rewound`). Throws Error.
  void rewind(std::uint64_t frames) { change(frames, false); }
  /// Complete the current file with its first `frames`, and begin the next with the others; returns
  /// when other processes can read both. Ends the acquisition. Throws Error.
  void split(std::uint64_t frames) { change(frames, true); }

  [[nodiscard]] RecorderSnapshot snapshot() const;
  /// Complete files, starting with index `first`.
  [[nodiscard]] std::vector<RecordedFile> files(std::size_t first = 0) const;
  /// "buffered", "direct" or "cufile": the writer that is used.
  [[nodiscard]] const std::string& writer() const noexcept { return files_.writer_name(); }
  /// Rung when a file is completed, the recorder ends, or an error occurs.
  Doorbell& doorbell() noexcept { return doorbell_; }

 private:
  Recorder(std::shared_ptr<Session> session, std::unique_ptr<RecordingSource> source,
           const RecorderOptions& options);

  // Called by the recorder's thread.
  void run() noexcept;
  /// Returns whether a limit has ended the recording.
  bool record();
  void take(Burst& burst);
  /// `taken` records of the group's limit were to be written since `before`.
  void tell_group(std::uint32_t taken, const CaptureFiles::Counts& before);
  std::uint32_t start_of(const Burst& burst) noexcept;
  /// Whether the frame belongs to an acquisition.
  bool asked_for(const Burst& frame);
  /// Write rows for the images before a frame that did not come. Returns why the frame itself is
  /// not written, if so.
  std::optional<CaptureLosses::Reason> fill_up_to(const Burst& frame);
  /// Let the next row be of the image after this one.
  void pass_over(const Burst& frame) noexcept;
  [[nodiscard]] std::uint64_t acquired_rows() const noexcept;
  void note_acquired();
  void end_acquisition();
  void answer_rewind();
  void change(std::uint64_t frames, bool split);
  void drain();
  /// Complete the current file.
  void complete();
  void answer_description();
  void answer_refusal();
  void answer_roll();
  void roll_with_group(std::uint64_t rolls);
  Burst* await();
  void publish();

  std::shared_ptr<Session> session_;
  std::unique_ptr<RecordingSource> source_;
  bool held_;
  /// Its own group if the recorder belongs to no other.
  std::shared_ptr<RecorderGroup> group_;
  bool alone_;
  /// Before the files, so that nothing is created if there is no descriptor for it.
  Doorbell doorbell_;
  // Used by the recorder's thread.
  CaptureFiles files_;
  std::uint64_t poll_at_{0};
  /// Flow with which files, or acquisitions, begin.
  std::optional<FlowId> start_flow_;
  /// Flow that the recorder waits for; none: files have begun.
  std::optional<FlowId> awaited_;
  std::uint64_t group_rolls_{0};
  /// The latest acquisition; `acquiring_`: it is in progress. `acquired_before_`: records when it
  /// began.
  struct Acquisition {
    std::uint64_t number{0};
    std::uint64_t frames{0};
    /// Order of its first frame.
    std::uint64_t order{0};
    /// Frames that the plan had lost or skipped before.
    std::uint64_t lost{0};
  };
  Acquisition acquisition_;
  bool acquiring_{false};
  std::uint64_t acquired_before_{0};
  /// Images of the acquisition that have no row, since they were omitted on request.
  std::uint64_t images_passed_{0};

  // Requests.
  std::atomic<bool> stopping_{false};
  std::atomic<bool> paused_{false};
  std::atomic<bool> refusal_asked_{false};
  std::atomic<std::uint64_t> descriptions_asked_{0};
  std::atomic<std::uint64_t> rolls_asked_{0};
  std::atomic<std::uint64_t> acquisitions_asked_{0};
  std::atomic<std::uint64_t> rewinds_asked_{0};
  std::mutex stop_mutex_;

  // Results.
  CounterGroup<7> counts_;
  mutable std::mutex mutex_;
  std::condition_variable answered_;
  std::string refusal_;
  RunMetadata description_;
  std::uint64_t descriptions_done_{0};
  std::uint64_t rolls_done_{0};
  Acquisition asked_;
  std::uint64_t acquired_{0};
  std::uint64_t acquisitions_done_{0};
  std::uint64_t rewind_to_{0};
  bool splits_{false};
  std::uint64_t rewinds_done_{0};
  std::optional<Error> rewind_refused_;
  std::vector<RecordedFile> completed_;
  std::string path_;
  std::string error_;
  bool failing_{false};
  std::uint64_t unreported_{0};
  bool running_{true};
  bool limit_reached_{false};

  std::jthread thread_;
};

}  // namespace daqiri
