/// Records a receive queue to rolling pcap files on a thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "burst/doorbell.h"
#include "metrics/counters.h"
#include "session/session.h"

namespace daqiri {

struct RecorderOptions {
  /// Existing directory, absolute.
  std::string directory;
  /// Files are <prefix>_<number, six digits>.pcap, each with <name>.pcap.json beside it.
  std::string prefix{"capture"};
  std::uint64_t first_number{0};
  bool nanosecond{true};
  /// Start a new file after this many packets, record bytes or seconds; 0: no limit.
  std::uint64_t roll_packets{0};
  std::uint64_t roll_bytes{0};
  double roll_seconds{0.0};
  /// Stop by itself after exactly this many packets; 0: no limit. What arrives later stays in the queue.
  std::uint64_t max_packets{0};
};

/// A file that is complete on disk.
struct RecordedFile {
  std::string path;
  std::uint64_t packets{0};
  /// Packet bytes as on the wire (record headers not counted).
  std::uint64_t bytes{0};
  /// ns; -1 for an empty file.
  std::int64_t t_first_ns{-1};
  std::int64_t t_last_ns{-1};
  /// Packets that the queue or the recorder dropped while this file was the current one.
  std::uint64_t dropped{0};
};

struct RecorderSnapshot {
  std::uint64_t packets{0};
  std::uint64_t bytes{0};
  /// Complete files.
  std::uint64_t files{0};
  /// Taken from the queue but not written (after an error).
  std::uint64_t dropped{0};
  bool running{false};
  /// First error, with path and errno text; empty: none.
  std::string error;
};

class Recorder {
 public:
  /// Attaches to the queue, creates the first file and starts. Throws Error (INVALID_PARAMETER for the
  /// options, NOT_READY when the queue has a recorder, GENERIC_FAILURE with path and errno for the file).
  Recorder(std::shared_ptr<Session> session, RxQueue& queue, RecorderOptions options);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  /// Stops.
  ~Recorder();

  /// Record what the queue has handed over by now, complete the current file, end the thread. Idempotent.
  void stop() noexcept;
  /// Complete the current file and begin the next; returns when the completed one is in `files`.
  void roll();
  /// While paused, packets are taken from the queue and discarded, counted as dropped (`filtered` in the file's
  /// metadata); files stay valid.
  void set_paused(bool paused) noexcept;

  [[nodiscard]] RecorderSnapshot snapshot() const;
  /// Complete files from index `first` on.
  [[nodiscard]] std::vector<RecordedFile> files(std::size_t first = 0) const;
  /// Rung when a file is completed, the recorder ends, or an error occurs.
  Doorbell& doorbell() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace daqiri
