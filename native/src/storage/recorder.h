/// Records a receive queue to rolling pcap files on a thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "burst/doorbell.h"
#include "session/session.h"

namespace daqiri {

struct RecorderOptions {
  /// Existing directory, absolute.
  std::string directory;
  /// Files are <prefix>_<number, six digits>.pcap, each with <name>.pcap.json beside it. Existing
  /// files are not overwritten.
  std::string prefix{"capture"};
  std::uint64_t first_number{0};
  bool nanosecond{true};
  /// A file is complete with the packet that makes it this many packets, this many bytes of records
  /// (16 bytes of record header and the packet, each), or once this many seconds have passed since
  /// its first packet; 0: no limit.
  std::uint64_t roll_packets{0};
  std::uint64_t roll_bytes{0};
  double roll_seconds{0.0};
  /// Stop by itself after exactly this many packets; 0: no limit. What the queue has not handed
  /// over by then stays in the queue; the rest of the burst that went beyond is counted as dropped
  /// (`after_limit`), since a burst cannot be put back.
  std::uint64_t max_packets{0};
};

/// A file that is complete on disk.
struct RecordedFile {
  std::string path;
  std::uint64_t packets{0};
  /// Packet bytes as on the wire, reconstructed headers included (record headers not counted).
  std::uint64_t bytes{0};
  /// ns; -1 for an empty file.
  std::int64_t t_first_ns{-1};
  std::int64_t t_last_ns{-1};
  /// Packets that the queue or the recorder dropped since the file before was complete.
  std::uint64_t dropped{0};
};

struct RecorderSnapshot {
  /// In files: packets, and their bytes as on the wire.
  std::uint64_t packets{0};
  std::uint64_t bytes{0};
  /// Complete files.
  std::uint64_t files{0};
  /// Taken from the queue but not in a file: after an error, while paused, beyond `max_packets`.
  std::uint64_t dropped{0};
  bool running{false};
  /// First error, with path and errno text; empty: none.
  std::string error;
};

/// Reception never waits for the recorder's files: after an error (disk full, directory removed)
/// the file is cut to whole records, what still comes is taken from the queue and counted as
/// dropped
/// (`write_error`), and the file is complete, with these drops in its metadata, when the recorder
/// ends. It ends when stopped, at `max_packets`, and once the queue is closed and empty.
class Recorder {
 public:
  /// Attaches to the queue, creates the first file and starts. Throws Error (INVALID_PARAMETER for
  /// the options and for a file that exists, NOT_READY when the queue has a recorder,
  /// GENERIC_FAILURE with path and errno for the file).
  Recorder(std::shared_ptr<Session> session, RxQueue& queue, const RecorderOptions& options);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  /// Stops.
  ~Recorder();

  /// Record what the queue has handed over by now, complete the current file, end the thread.
  /// Idempotent; any thread.
  void stop() noexcept;
  /// Record what the queue has handed over by now and complete the current file; returns when it is
  /// in `files`. The next file appears with its first packet, or empty with the next roll, so that
  /// there is at least one file between two rolls. Throws Error NOT_READY when the recorder has
  /// ended, GENERIC_FAILURE with its first error.
  void roll();
  /// While paused, packets are taken from the queue and discarded, counted as dropped (`paused` in
  /// the file's metadata); files stay valid.
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
