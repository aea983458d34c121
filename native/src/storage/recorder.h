/// Records a receive queue to rolling files on a thread of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "metrics/counters.h"
#include "session/session.h"
#include "storage/capture_files.h"
#include "system/doorbell.h"

namespace daqiri {

struct RecorderSnapshot {
  /// In files: packets, and their bytes as on the wire.
  std::uint64_t packets{0};
  std::uint64_t bytes{0};
  /// Complete files.
  std::uint64_t files{0};
  /// Taken from the queue and lost, after an error.
  std::uint64_t dropped{0};
  /// Taken from the queue and left out: while paused, beyond `max_packets`.
  std::uint64_t left_out{0};
  bool running{false};
  /// Nothing gets into a file at the moment.
  bool failing{false};
  /// First error, with path and errno text; empty: none.
  std::string error;
};

/// Reception never waits for the recorder's files: after an error (disk full, directory removed)
/// the file is cut to whole records, and what still comes is taken from the queue and counted as
/// lost (`write_error`). It stays the current file, so that its metadata tell these losses, until
/// the recorder ends (OnError::STOP) or goes on: OnError::RESUME tries that every half a second, in
/// the same file while that is empty, else in a new one. For the same reason a file is complete
/// only once the next one can be made. A recorder ends when stopped, at `max_packets`, and once the
/// queue is closed and empty. A child that is forked meanwhile has no part in it.
class Recorder {
 public:
  /// Attaches to the queue, creates the first file and starts. Throws Error (INVALID_PARAMETER for
  /// the options and for a file that exists, NOT_READY when the queue has a recorder,
  /// GENERIC_FAILURE with path and errno for the file).
  Recorder(std::shared_ptr<Session> session, RxQueue& queue, const RecorderOptions& options);
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
  /// the file's metadata); files stay valid.
  void set_paused(bool paused) noexcept { paused_.store(paused, std::memory_order_relaxed); }

  [[nodiscard]] RecorderSnapshot snapshot() const;
  /// Complete files from index `first` on.
  [[nodiscard]] std::vector<RecordedFile> files(std::size_t first = 0) const;
  /// "buffered" or "direct": what became of the option.
  [[nodiscard]] const std::string& writer() const noexcept { return files_.writer_name(); }
  /// Rung when a file is completed, the recorder ends, or an error occurs.
  Doorbell& doorbell() noexcept { return doorbell_; }

 private:
  // The recorder's thread.
  void run() noexcept;
  void record();
  void take(Burst& burst);
  void drain();
  void answer_roll();
  Burst* await();
  void publish();
  [[nodiscard]] bool limit_reached() const noexcept {
    return max_packets_ > 0 && files_.packets() >= max_packets_;
  }

  std::shared_ptr<Session> session_;
  RxQueue& queue_;
  /// The queue, until it may have another recorder.
  std::unique_ptr<RxQueue, void (*)(RxQueue*)> attached_;
  std::uint64_t max_packets_;
  // The recorder's thread's.
  CaptureFiles files_;
  std::uint64_t poll_at_{0};

  // Requests.
  std::atomic<bool> stopping_{false};
  std::atomic<bool> paused_{false};
  std::atomic<std::uint64_t> rolls_asked_{0};
  std::mutex stop_mutex_;

  // Results.
  CounterGroup<4> counts_;
  mutable std::mutex mutex_;
  std::condition_variable answered_;
  std::uint64_t rolls_done_{0};
  std::vector<RecordedFile> completed_;
  std::string error_;
  bool failing_{false};
  bool running_{true};
  Doorbell doorbell_;

  std::jthread thread_;
};

}  // namespace daqiri
