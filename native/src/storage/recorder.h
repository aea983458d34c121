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
  /// In files: packets, and their bytes as on the wire; of frames, these and the bytes of them.
  std::uint64_t packets{0};
  std::uint64_t bytes{0};
  /// Complete files.
  std::uint64_t files{0};
  /// Records taken from the source and lost, after an error.
  std::uint64_t dropped{0};
  /// Taken from the source and left out: while paused, before `start_flow`, beyond `max_packets`.
  std::uint64_t left_out{0};
  bool running{false};
  /// Nothing gets into a file at the moment.
  bool failing{false};
  /// First error, with path and errno text; empty: none.
  std::string error;
  /// Lost by the source or the recorder, and in no file's metadata; known once it has ended.
  std::uint64_t unreported{0};
  /// Ended at `max_packets`, or because its time was over.
  bool limit_reached{false};
  /// In files; packets that they lack.
  std::uint64_t frames{0};
  std::uint64_t missing{0};
  /// Records of the current file that others can read by now.
  std::uint64_t flushed{0};
  /// Frames of the acquisition that is done; 0: none is.
  std::uint64_t acquired{0};
  /// Acquisitions that are done.
  std::uint64_t acquisitions{0};
  /// The current file; empty: there is none.
  std::string path;
};

/// Reception never waits for the recorder's files: after an error (disk full, directory removed)
/// the file is cut to whole records, and what still comes is taken from the queue and counted as
/// lost (`write_error`). It stays the current file, so that its metadata tell these losses, until
/// the recorder ends (OnError::STOP) or goes on: OnError::RESUME tries that every half a second, in
/// the same file while that is empty, else in a new one. For the same reason a file is complete
/// only once the next one can be made. A recorder ends when stopped, at `max_packets`, after
/// `max_seconds`, and once the queue is closed and empty. A child that is forked meanwhile has no
/// part in it.
class Recorder {
 public:
  /// Attaches to the source, creates the first file and starts. Throws Error (INVALID_PARAMETER for
  /// the options and for a file that exists, NOT_READY when somebody else has the source,
  /// GENERIC_FAILURE with path and errno for the file).
  Recorder(const std::shared_ptr<Session>& session, RxQueue& queue, const RecorderOptions& options);
  Recorder(const std::shared_ptr<Session>& session, reorder::RunningPlan& plan,
           const RecorderOptions& options);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder() { stop(); }

  /// Record what the queue has handed over by now, complete the current file, end the thread.
  /// Idempotent; any thread.
  void stop() noexcept;
  /// Record what the queue has handed over by now and complete the current file; returns when it is
  /// in `files`. The next file appears with its first packet, or empty with the next roll, so that
  /// there is at least one file between two rolls. Throws Error NOT_READY when the recorder has
  /// ended, GENERIC_FAILURE with its first error while it is failing.
  void roll();
  /// While paused, packets are taken from the queue and discarded, counted as left out (`paused` in
  /// the file's metadata), and the clock of `max_seconds` stops; files stay valid.
  void set_paused(bool paused);
  /// `max_seconds`, its own or its group's, is over so long from now. Throws Error.
  void end_in(double seconds);
  /// Record exactly the next `frames` frames (0: all) whose first packet comes from now on; the
  /// snapshot tells when they are in the file and others can read them. What was asked for before
  /// is over. Returns frames that the source had lost by then. Throws Error INVALID_PARAMETER
  /// unless it is `held`, NOT_READY when it has ended.
  std::uint64_t acquire(std::uint64_t frames);
  /// Forget the current file's frames behind the first `frames`, and what was asked for; returns
  /// when it is done. The forgotten are left out (`rewound`). Throws Error.
  void rewind(std::uint64_t frames) { change(frames, false); }
  /// Complete the current file with its first `frames`, and begin the next with the others; returns
  /// when others can read both. What was asked for is over. Throws Error.
  void split(std::uint64_t frames) { change(frames, true); }

  [[nodiscard]] RecorderSnapshot snapshot() const;
  /// Complete files from index `first` on.
  [[nodiscard]] std::vector<RecordedFile> files(std::size_t first = 0) const;
  /// "buffered", "direct" or "cufile": what became of the option.
  [[nodiscard]] const std::string& writer() const noexcept { return files_.writer_name(); }
  /// Rung when a file is completed, the recorder ends, or an error occurs.
  Doorbell& doorbell() noexcept { return doorbell_; }

 private:
  Recorder(std::shared_ptr<Session> session, std::unique_ptr<RecordingSource> source,
           const RecorderOptions& options);

  // The recorder's thread.
  void run() noexcept;
  /// Returns whether a limit has ended it.
  bool record();
  void take(Burst& burst);
  std::uint32_t start_of(const Burst& burst) noexcept;
  /// Whether an acquisition asks for the frame.
  bool asked_for(const Burst& frame);
  void note_acquired();
  void end_acquisition();
  void answer_rewind();
  void change(std::uint64_t frames, bool split);
  void drain();
  void answer_roll();
  void roll_with_group(std::uint64_t rolls);
  Burst* await();
  void publish();

  std::shared_ptr<Session> session_;
  std::unique_ptr<RecordingSource> source_;
  bool held_;
  /// Its own, if it has the limits alone.
  std::shared_ptr<RecorderGroup> group_;
  bool alone_;
  /// Before the files: nothing is begun where there is no descriptor for it.
  Doorbell doorbell_;
  // The recorder's thread's.
  CaptureFiles files_;
  std::uint64_t poll_at_{0};
  /// Files begin with it, or each acquisition.
  std::optional<FlowId> start_flow_;
  /// What it waits for; none: files have begun.
  std::optional<FlowId> awaited_;
  std::uint64_t group_rolls_{0};
  /// As asked for at the latest; `acquiring_`: it goes on. `acquired_before_`: records when it
  /// began.
  struct Acquisition {
    std::uint64_t number{0};
    std::uint64_t frames{0};
    /// Port clock.
    std::uint64_t since{0};
    /// Frames that the plan had lost by then.
    std::uint64_t lost{0};
  };
  Acquisition acquisition_;
  bool acquiring_{false};
  std::uint64_t acquired_before_{0};

  // Requests.
  std::atomic<bool> stopping_{false};
  std::atomic<bool> paused_{false};
  std::atomic<std::uint64_t> rolls_asked_{0};
  std::atomic<std::uint64_t> acquisitions_asked_{0};
  std::atomic<std::uint64_t> rewinds_asked_{0};
  std::mutex stop_mutex_;

  // Results.
  CounterGroup<7> counts_;
  mutable std::mutex mutex_;
  std::condition_variable answered_;
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
