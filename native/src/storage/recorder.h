/// Records a receive queue to rolling files on a thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "session/session.h"
#include "storage/file_output.h"
#include "system/doorbell.h"

namespace daqiri {

enum class CaptureFormat : std::uint8_t { PCAP, RAW };
/// What a recorder does when its file cannot be written: it goes on without (what comes is lost)
/// until it ends, or it tries to go on every now and then.
enum class OnError : std::uint8_t { STOP, RESUME };

struct RecorderOptions {
  /// Existing directory, absolute.
  std::string directory;
  /// Files are <prefix>_<number, six digits>.pcap or .raw, each with its metadata beside it in
  /// <name>.json. Existing files are not overwritten: the first one is refused, later ones leave
  /// the number out.
  std::string prefix{"capture"};
  std::uint64_t first_number{0};
  CaptureFormat format{CaptureFormat::PCAP};
  /// pcap: resolution of the times.
  bool nanosecond{true};
  /// raw: bytes that are left out at the beginning of each packet.
  std::uint64_t packet_data_offset{0};
  /// How bytes get to the disk. DIRECT is BUFFERED, with a warning, where it is not possible; AUTO
  /// is DIRECT where it is possible.
  WriterKind writer{WriterKind::BUFFERED};
  OnError on_error{OnError::STOP};
  /// A file is complete once the disk has it (fdatasync), and not before.
  bool durable{false};
  /// A file is complete with the packet that makes it this many packets, this many bytes of records
  /// (pcap: 16 bytes of record header and the packet, each), or once this many seconds have passed
  /// since its first packet; 0: no limit.
  std::uint64_t roll_packets{0};
  std::uint64_t roll_bytes{0};
  double roll_seconds{0.0};
  /// Stop by itself after exactly this many packets; 0: no limit. What the queue has not handed
  /// over by then stays in the queue; the rest of the burst that went beyond is counted as left out
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
  /// Packets that the queue or the recorder lost since the file before was complete.
  std::uint64_t dropped{0};
  /// Packets that were left out on request in that time: filtered, flushed, paused, behind the
  /// limit.
  std::uint64_t left_out{0};
};

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
  /// Stops.
  ~Recorder();

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
  void set_paused(bool paused) noexcept;

  [[nodiscard]] RecorderSnapshot snapshot() const;
  /// Complete files from index `first` on.
  [[nodiscard]] std::vector<RecordedFile> files(std::size_t first = 0) const;
  /// "buffered" or "direct": what became of the option.
  [[nodiscard]] std::string writer() const;
  /// Rung when a file is completed, the recorder ends, or an error occurs.
  Doorbell& doorbell() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace daqiri
