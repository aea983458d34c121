/// Interface of the writers that a recorder uses for its files.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "burst/burst.h"
#include "storage/file_output.h"

namespace daqiri {

/// Records that were taken out of a file.
class TakenRecords {
 public:
  TakenRecords() = default;
  TakenRecords(const TakenRecords&) = delete;
  TakenRecords& operator=(const TakenRecords&) = delete;
  virtual ~TakenRecords() = default;
};

/// Writes records, which are packets or frames, to one file at a time. One thread.
///
/// A failed write leaves a file that is whole up to some record, and ends it: later writes are
/// refused until `retry`, `error` tells the first problem.
class RecordWriter {
 public:
  static constexpr std::uint64_t NO_LIMIT = std::numeric_limits<std::uint64_t>::max();

  RecordWriter() = default;
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  virtual ~RecordWriter() = default;

  /// How names of files end.
  [[nodiscard]] virtual const char* suffix() const noexcept = 0;
  /// What `size` is of a file without records.
  [[nodiscard]] virtual std::size_t header_size() const noexcept = 0;
  /// "buffered", "direct", "cufile"
  [[nodiscard]] virtual const char* output_name() const noexcept = 0;
  /// How cuFile does it; empty: another does.
  [[nodiscard]] virtual std::string cufile_mode() const { return {}; }

  /// Make the file `path` ready for `create`, while another one may be open: all that can be
  /// refused is done now, and nothing is seen of it yet. Throws Error: INVALID_PARAMETER when it
  /// exists, GENERIC_FAILURE with path and errno.
  virtual void prepare(const std::string& path) = 0;
  virtual void discard_prepared() noexcept = 0;
  /// Begin the file `path`, which must not exist, prepared or not. Throws as `prepare`.
  virtual void create(const std::string& path) = 0;
  /// Write records [first, first + count) of `burst`, stopping behind the one with which the file
  /// reaches `size_limit` bytes. Returns how many were taken, none of them after an error: `tally`
  /// then tells what the file has, which may be less than was taken before.
  virtual std::uint32_t write(const Burst& burst, std::uint32_t first, std::uint32_t count,
                              std::uint64_t size_limit) noexcept = 0;
  /// Wait until what was taken is in the file, where others can read it.
  virtual void sync() noexcept = 0;
  /// After a failed write: go on in the same file. False when that is not possible.
  virtual bool retry() noexcept = 0;
  /// Forget records of the open file behind the first `records`, of which it has at least as many.
  /// False when its kind of file cannot, or there was an error.
  virtual bool rewind(std::uint64_t /*records*/) noexcept { return false; }
  /// Take the records of the open file behind the first `records` out of it. Null when its kind of
  /// file cannot, or there was an error.
  virtual std::unique_ptr<TakenRecords> take_back(std::uint64_t /*records*/) noexcept {
    return nullptr;
  }
  /// Put such records into the open file. False when there was an error.
  virtual bool put_back(TakenRecords& /*records*/) noexcept { return false; }
  /// End the file; `durable`: once the disk has it. A problem is in `error`. Idempotent.
  virtual void close(bool durable) noexcept = 0;
  /// Remove the open file, and what belongs to it, unless other files have their names by now.
  virtual void remove() noexcept = 0;

  [[nodiscard]] virtual bool failed() const noexcept = 0;
  /// The first problem with the file, with path and errno text; empty: none.
  [[nodiscard]] virtual std::string error() const = 0;
  /// Bytes, as limits count them.
  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;
  [[nodiscard]] virtual const FileTally& tally() const noexcept = 0;
  /// Records of the tally.
  [[nodiscard]] virtual std::uint64_t records() const noexcept = 0;
  /// Records that others can read by now.
  [[nodiscard]] virtual std::uint64_t flushed() const noexcept = 0;
  [[nodiscard]] virtual const std::string& path() const noexcept = 0;
  /// False when the file was removed, or somebody cut it.
  [[nodiscard]] virtual bool still_there() const noexcept = 0;
};

}  // namespace daqiri
