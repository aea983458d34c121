/// Bursts to a classic pcap file.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "burst/burst.h"
#include "storage/file.h"
#include "storage/link_layer.h"
#include "storage/tail_guard.h"

namespace daqiri {

struct PcapFormat {
  std::uint32_t link_type{LINKTYPE_ETHERNET};
  bool nanosecond{false};
};

/// What one writer has put into one file; records that were there before do not count.
struct PcapTally {
  std::uint64_t packets{0};
  /// As on the wire, reconstructed headers included (the sum of the records' original lengths).
  std::uint64_t wire_bytes{0};
  /// Times of the first and the last record, ns; -1: none.
  std::int64_t first_ns{-1};
  std::int64_t last_ns{-1};
};

/// Writes one file at a time; buffers are kept from file to file. One thread.
///
/// A file is locked (flock) while it is open. A failed write cuts the file to whole records and
/// ends it: later writes are refused, `error` tells the first problem.
class PcapWriter {
 public:
  enum class Existing { APPEND, REFUSE };
  static constexpr std::uint64_t NO_LIMIT = std::numeric_limits<std::uint64_t>::max();

  /// With a guard, the file has whole records also after a kill.
  explicit PcapWriter(TailGuard* guard = nullptr);
  PcapWriter(const PcapWriter&) = delete;
  PcapWriter& operator=(const PcapWriter&) = delete;
  ~PcapWriter();

  /// Begin `path`, with the file header where it is new or empty. `longest` is the longest record
  /// that an existing file must take (at most pcap::SNAP_LENGTH). Throws Error, leaving an existing
  /// file as it was: INVALID_PARAMETER when it is of another kind or ends in a torn record,
  /// NOT_READY when somebody else writes it, GENERIC_FAILURE with path and errno.
  void open(const std::string& path, const PcapFormat& format, Existing existing,
            std::uint32_t longest = 0);

  /// Write packets [first, first + count) of `burst`, stopping behind the record with which the
  /// file reaches `size_limit` bytes. Returns how many packets are whole in the file.
  std::uint32_t write(const Burst& burst, const LinkLayer& link, std::uint32_t first,
                      std::uint32_t count, std::uint64_t size_limit = NO_LIMIT) noexcept;

  /// End the file. A problem is in `error`. Idempotent.
  void close() noexcept;

  [[nodiscard]] bool is_open() const noexcept { return file_.is_open(); }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// The first problem with the file, with path and errno text; empty: none.
  [[nodiscard]] std::string error() const;
  /// Bytes in the file, what was there before included.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// What this writer added to the file, its file header included.
  [[nodiscard]] std::uint64_t bytes_written() const noexcept { return size_ - size_before_; }
  [[nodiscard]] const PcapTally& tally() const noexcept { return tally_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// False when the file was removed.
  [[nodiscard]] bool still_there() const noexcept;

 private:
  struct Batch;

  void begin(const PcapFormat& format, std::uint32_t longest);
  void require_compatible(const PcapFormat& format, std::uint32_t longest);
  void add(const Burst& burst, const LinkLayer* link, std::uint32_t packet,
           std::uint64_t time) noexcept;
  std::uint32_t flush() noexcept;
  void fail(const char* action, int error_number) noexcept;

  TailGuard* guard_;
  std::unique_ptr<Batch> batch_;
  File file_;
  std::string path_;
  std::uint64_t size_{0};
  std::uint64_t size_before_{0};
  std::uint32_t snap_length_{0};
  std::uint32_t ticks_per_second_{1};
  std::uint32_t ns_per_tick_{1};
  PcapTally tally_;
  bool failed_{false};
  const char* failed_action_{""};
  int failed_errno_{0};
  int cut_errno_{0};
};

}  // namespace daqiri
