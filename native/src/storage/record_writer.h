/// Interface of the writers that a recorder uses for its files.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "burst/burst.h"
#include "storage/file_output.h"
#include "storage/run_metadata.h"

namespace daqiri {

/// Records that were removed from a file.
class TakenRecords {
 public:
  TakenRecords() = default;
  TakenRecords(const TakenRecords&) = delete;
  TakenRecords& operator=(const TakenRecords&) = delete;
  virtual ~TakenRecords() = default;
};

/// Writes records, which are packets or frames, to one file at a time. One thread.
///
/// A failed write leaves a file of whole records and ends it: later writes are rejected until
/// `retry`; `error` returns the first problem.
class RecordWriter {
 public:
  static constexpr std::uint64_t NO_LIMIT = std::numeric_limits<std::uint64_t>::max();

  RecordWriter() = default;
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;
  virtual ~RecordWriter() = default;

  /// Suffix of file names.
  [[nodiscard]] virtual const char* suffix() const noexcept = 0;
  /// `size` of a file without records.
  [[nodiscard]] virtual std::size_t header_size() const noexcept = 0;
  /// "buffered", "direct", "cufile"
  [[nodiscard]] virtual const char* output_name() const noexcept = 0;
  /// The mode of cuFile; empty: another writer.
  [[nodiscard]] virtual std::string cufile_mode() const { return {}; }

  /// Report this in later files, and in the open one if its run is not known.
  virtual void describe(const RunMetadata& /*metadata*/) noexcept {}
  /// Prepare the file `path` for `create`, while another file may be open. Everything that can fail
  /// is checked now, and the file is not visible yet. Throws Error: INVALID_PARAMETER if the file
  /// exists, GENERIC_FAILURE with path and errno.
  virtual void prepare(const std::string& path) = 0;
  virtual void discard_prepared() noexcept = 0;
  /// Create the file `path`, prepared or not; it must not exist. Throws like `prepare`.
  virtual void create(const std::string& path) = 0;
  /// Records [first, first + count) of `burst` are written next: fetch those from a GPU that the
  /// CPU cannot read there. After an error, `write` fails.
  virtual void fetch(const Burst& /*burst*/, std::uint32_t /*first*/,
                     std::uint32_t /*count*/) noexcept {}
  /// Write records [first, first + count) of `burst`, up to the one with which the file reaches
  /// `size_limit` bytes. Returns the number of records written, 0 after an error: `tally` then
  /// shows the contents of the file, which may be less than before.
  virtual std::uint32_t write(const Burst& burst, std::uint32_t first, std::uint32_t count,
                              std::uint64_t size_limit) noexcept = 0;
  /// Write `count` frames of fill value, of which no packet came; `next` is the frame after them,
  /// and the first of them is `before` frames before it. Otherwise like `write`; returns 0 if the
  /// format does not support this.
  virtual std::uint32_t write_absent(const Burst& /*next*/, std::uint64_t /*before*/,
                                     std::uint32_t /*count*/,
                                     std::uint64_t /*size_limit*/) noexcept {
    return 0;
  }
  /// Whether it holds records back, to put them into the file together with later ones. It then
  /// checks itself that the file is still there.
  [[nodiscard]] virtual bool holds_back() const noexcept { return false; }
  /// Put these records into the file.
  virtual void put_held_back() noexcept {}
  /// Wait until all written records, also those held back, are in the file and readable by other
  /// processes.
  virtual void sync() noexcept = 0;
  /// After a failed write: continue in the same file. Returns false if that is not possible.
  virtual bool retry() noexcept = 0;
  /// Discard records of the open file after the first `records`; it must have at least as many.
  /// Returns false if the format does not support this, or after an error.
  virtual bool rewind(std::uint64_t /*records*/) noexcept { return false; }
  /// Remove and return the records of the open file after the first `records`. Returns null if the
  /// format does not support this, or after an error.
  virtual std::unique_ptr<TakenRecords> take_back(std::uint64_t /*records*/) noexcept {
    return nullptr;
  }
  /// Append removed records to the open file. Returns false after an error.
  virtual bool put_back(TakenRecords& /*records*/) noexcept { return false; }
  /// Close the file; `durable`: sync it to disk first. `error` returns a problem. Idempotent.
  virtual void close(bool durable) noexcept = 0;
  /// Remove the open file and its index, unless other files have their names now.
  virtual void remove() noexcept = 0;

  [[nodiscard]] virtual bool failed() const noexcept = 0;
  /// The first problem with the file, with path and errno text; empty: none.
  [[nodiscard]] virtual std::string error() const = 0;
  /// Size in bytes, as limits count it.
  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;
  [[nodiscard]] virtual const FileTally& tally() const noexcept = 0;
  /// Number of records in the tally.
  [[nodiscard]] virtual std::uint64_t records() const noexcept = 0;
  /// Number of records that other processes can read now.
  [[nodiscard]] virtual std::uint64_t flushed() const noexcept = 0;
  [[nodiscard]] virtual const std::string& path() const noexcept = 0;
  /// False if the file was removed or truncated by another program.
  [[nodiscard]] virtual bool still_there() const noexcept = 0;
};

}  // namespace daqiri
