/// Records a receive queue to rolling files on a thread of its own.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "metrics/counters.h"
#include "session/session.h"
#include "storage/packet_writer.h"
#include "system/doorbell.h"
#include "system/log.h"
#include "timing/clock.h"

namespace daqiri {

enum class CaptureFormat : std::uint8_t { PCAP, RAW };
/// What a recorder does when its file cannot be written: it goes on without (what comes is lost)
/// until it ends, or it tries to go on every now and then.
enum class OnError : std::uint8_t { STOP, RESUME };

/// Recorders of several queues whose files belong together. The limits hold for what they write
/// together; when a file is full all of them complete theirs, even an empty one, and each ends with
/// a file: all have equally many.
class RecorderGroup {
 public:
  /// 0: no limit. Bytes are those of packets on the wire.
  struct Limits {
    std::uint64_t max_packets{0};
    std::uint64_t roll_packets{0};
    std::uint64_t roll_bytes{0};
    double roll_seconds{0.0};
  };
  /// Throws Error.
  explicit RecorderGroup(const Limits& limits);

  /// Take so many packets of `max_packets`; returns how many there were.
  std::uint32_t take(std::uint32_t wanted) noexcept;
  void give_back(std::uint64_t packets) noexcept {
    if (limits_.max_packets > 0) left_.fetch_add(packets, std::memory_order_relaxed);
  }
  [[nodiscard]] bool limit_reached() const noexcept {
    return limits_.max_packets > 0 && left_.load(std::memory_order_relaxed) == 0;
  }

  /// So much was written since the last call, by one of them.
  void wrote(std::uint64_t packets, std::uint64_t bytes);
  /// How often all have to complete a file.
  [[nodiscard]] std::uint64_t rolls() const noexcept {
    return rolls_.load(std::memory_order_acquire);
  }
  /// Roll by time. CLOCK_MONOTONIC.
  void poll(std::uint64_t now_ns);
  /// One of them ends: there are no more rolls. Returns how many there were.
  std::uint64_t end();

 private:
  void roll();

  const Limits limits_;
  std::uint64_t roll_ns_;
  std::atomic<std::uint64_t> left_;
  std::atomic<std::uint64_t> rolls_{0};
  std::mutex mutex_;
  // Since the last roll; the time is that of the first packet, 0: none yet.
  std::uint64_t packets_{0};
  std::uint64_t bytes_{0};
  std::uint64_t first_ns_{0};
  bool ended_{false};
};

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
  /// Files begin with the first packet that has this flow id; what comes before is left out
  /// (`before_start`).
  std::optional<FlowId> start_flow{};
  /// Null: it is on its own. Limits are the group's, not those above.
  std::shared_ptr<RecorderGroup> group{};
};

/// A file that is complete on disk.
struct RecordedFile : FileTally {
  std::string path;
  /// Packets that the queue or the recorder lost since the file before was complete.
  std::uint64_t dropped{0};
  /// Packets that were left out on request in that time: filtered, flushed, paused, before the
  /// start, behind the limit.
  std::uint64_t left_out{0};
};

// --- Metadata

/// What is the same for all files of a recording.
struct CaptureOrigin {
  CaptureOrigin(const RecorderOptions& chosen, const Session& session, const RxQueue& from);

  RecorderOptions options;
  std::shared_ptr<const LinkLayer> link;
  /// "<interface>/<queue>"
  std::string queue;
  /// "buffered", "direct"
  std::string writer;
  /// JSON: the flows that lead to the queue; name, kernel and processor of this machine, version of
  /// this engine.
  std::string flows;
  std::string host;
};

/// What did not get into files until some moment: counted by the queue, and by its recorder.
struct CaptureLosses {
  /// Why a recorder did not write a packet that it took from its queue. The first is a loss.
  enum Reason : std::uint8_t { WRITE_ERROR, PAUSED, BEFORE_START, AFTER_LIMIT };

  RxSnapshot counters;
  std::array<std::uint64_t, 4> not_written{};
};

/// What <name>.json says, one JSON object; and the sums of its packets that were lost while the
/// file was the current one, and that were left out because somebody asked for it.
struct CaptureMetadata {
  std::string json;
  std::uint64_t dropped;
  std::uint64_t left_out;
};

/// Of a file that was begun at `begun_ns` (CLOCK_REALTIME) and is complete now; what it tells is
/// lost is what was lost from `before` to `now`.
CaptureMetadata describe(const CaptureOrigin& origin, const FileTally& tally,
                         std::uint64_t begun_ns, const CaptureLosses& before,
                         const CaptureLosses& now);

// --- Files

class Sidecar;

/// Numbers, rolls and completes files, and keeps account of what did not get into them. One thread.
class CaptureFiles {
 public:
  /// Tidies the directory up and creates the first file. Throws Error.
  CaptureFiles(const RecorderOptions& options, const Session& session, RxQueue& queue);
  ~CaptureFiles();

  /// Put packets [first, end) into files, rolling as asked for; those that do not get there are
  /// counted as lost, and `error` tells why.
  void write(const Burst& burst, std::uint32_t first, std::uint32_t end);
  /// Complete the current file, or an empty one when there is none, unless limits have completed
  /// one since the last call of this: an empty one behind it would tell nothing. A file stays the
  /// current one while the next cannot be prepared: there is always one whose metadata tell what is
  /// lost.
  void complete();
  /// Complete what is to be completed at the end of a recording.
  void finish();
  /// Roll by time; see that the file is still there and not far behind; try again after an error.
  /// Returns CLOCK_MONOTONIC ns when it is to be called again at the latest.
  std::uint64_t poll(std::uint64_t now_ns);
  /// So many packets are not put into files.
  void leave_out(CaptureLosses::Reason reason, std::uint64_t packets) noexcept {
    not_written_[reason] += packets;
  }

  /// The first error; empty: none.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] bool failing() const noexcept { return failing_; }
  /// Complete files that nobody has taken yet.
  std::vector<RecordedFile> take_completed() { return std::exchange(completed_, {}); }
  [[nodiscard]] bool any_completed() const noexcept { return !completed_.empty(); }
  /// In files, the current one included.
  [[nodiscard]] std::uint64_t packets() const noexcept {
    return before_.packets + (has_file_ ? writer_.tally().packets : 0);
  }
  /// These packets, their bytes as on the wire, packets lost, packets left out.
  [[nodiscard]] std::array<std::uint64_t, 4> counts() const noexcept {
    return {packets(), before_.bytes + (has_file_ ? writer_.tally().bytes : 0),
            not_written_[CaptureLosses::WRITE_ERROR],
            not_written_[CaptureLosses::PAUSED] + not_written_[CaptureLosses::BEFORE_START] +
                not_written_[CaptureLosses::AFTER_LIMIT]};
  }
  [[nodiscard]] const std::string& writer_name() const noexcept { return origin_.writer; }
  /// After `finish`: packets that were lost and are in no file's metadata, which could not be
  /// written.
  [[nodiscard]] std::uint64_t unreported() const noexcept { return unreported_; }

  /// Leave nothing of what was begun.
  void discard() noexcept;

 private:
  [[nodiscard]] PacketWriter make_writer() const;
  [[nodiscard]] std::string next_path() const;
  /// Whether there is a file to write to, after trying to have one.
  bool ready();
  bool retry_is_due() const noexcept {
    return options_.on_error == OnError::RESUME && monotonic_ns() >= retry_at_;
  }
  /// Go on after an error: in the same file while that is empty, else in the next.
  bool recover();
  /// Throws Error.
  void begin_next();
  bool try_begin();
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
  [[nodiscard]] CaptureLosses losses() const { return {queue_.counters(), not_written_}; }
  [[nodiscard]] CaptureMetadata metadata(const CaptureLosses& now) const {
    return describe(origin_, writer_.tally(), begun_ns_, losses_before_, now);
  }
  void log_about(LogLevel level, const std::string& text) const;
  /// The writer failed; its file had `packets` before.
  void note_failure(std::uint64_t packets);
  void fail(const std::string& text);
  void forget_file(const std::string& text);

  RxQueue& queue_;
  CaptureOrigin origin_;
  const RecorderOptions& options_{origin_.options};
  PacketWriter writer_;
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
  FileTally before_;
  decltype(CaptureLosses::not_written) not_written_{};
  /// When the file before was complete.
  CaptureLosses losses_before_;
  std::uint64_t unreported_{0};
  std::vector<RecordedFile> completed_;
};

// --- The recorder

struct RecorderSnapshot {
  /// In files: packets, and their bytes as on the wire.
  std::uint64_t packets{0};
  std::uint64_t bytes{0};
  /// Complete files.
  std::uint64_t files{0};
  /// Taken from the queue and lost, after an error.
  std::uint64_t dropped{0};
  /// Taken from the queue and left out: while paused, before `start_flow`, beyond `max_packets`.
  std::uint64_t left_out{0};
  bool running{false};
  /// Nothing gets into a file at the moment.
  bool failing{false};
  /// First error, with path and errno text; empty: none.
  std::string error;
  /// Lost by the queue or the recorder, and in no file's metadata; known once it has ended.
  std::uint64_t unreported{0};
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
  std::uint32_t start_of(const Burst& burst) noexcept;
  void drain();
  void answer_roll();
  void roll_with_group(std::uint64_t rolls);
  Burst* await();
  void publish();

  std::shared_ptr<Session> session_;
  RxQueue& queue_;
  /// The queue, until it may have another recorder.
  std::unique_ptr<RxQueue, void (*)(RxQueue*)> attached_;
  /// Its own, if it has the limit alone.
  std::shared_ptr<RecorderGroup> group_;
  bool alone_;
  /// Before the files: nothing is begun where there is no descriptor for it.
  Doorbell doorbell_;
  // The recorder's thread's.
  CaptureFiles files_;
  std::uint64_t poll_at_{0};
  /// What it waits for; none: files have begun.
  std::optional<FlowId> awaited_;
  std::uint64_t group_rolls_{0};

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
  std::uint64_t unreported_{0};
  bool running_{true};

  std::jthread thread_;
};

}  // namespace daqiri
