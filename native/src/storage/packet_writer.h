/// Bursts to a file, whatever its format.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "burst/burst.h"
#include "net/link_layer.h"
#include "storage/file_output.h"
#include "storage/packet_prefixes.h"
#include "storage/record_batch.h"
#include "storage/tail_guard.h"
#include "system/file.h"

namespace daqiri {

/// Writes one file at a time; buffers are kept from file to file. One thread.
///
/// A file is locked (flock) while it is open. A failed write cuts the file to whole records and
/// ends it: later writes are refused, `error` tells the first problem.
class PacketWriter {
 public:
  static constexpr std::uint64_t NO_LIMIT = std::numeric_limits<std::uint64_t>::max();

  PacketWriter(const PacketWriter&) = delete;
  PacketWriter& operator=(const PacketWriter&) = delete;
  virtual ~PacketWriter() = default;

  /// How names of files end: ".pcap".
  [[nodiscard]] virtual const char* suffix() const noexcept = 0;
  /// Begin the file `path`, which must not exist. Throws Error: INVALID_PARAMETER when it does,
  /// GENERIC_FAILURE with path and errno.
  virtual void create(const std::string& path) = 0;

  /// Write packets [first, first + count) of `burst`, stopping behind the record with which the
  /// file reaches `size_limit` bytes. Returns how many packets were taken, none of them after an
  /// error: `tally` then tells what the file has, which may be less than was taken before.
  std::uint32_t write(const Burst& burst, const LinkLayer& link, std::uint32_t first,
                      std::uint32_t count, std::uint64_t size_limit = NO_LIMIT) noexcept;

  /// See to it that what was taken is in the file.
  void settle() noexcept;

  /// End the file; `durable`: once the disk has it. A problem is in `error`. Idempotent.
  void close(bool durable = false) noexcept;

  /// Remove the file that was written last, with all that belongs to it.
  virtual void remove() noexcept;

  [[nodiscard]] bool is_open() const noexcept { return file_.is_open(); }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// The first problem with the file, with path and errno text; empty: none.
  [[nodiscard]] std::string error() const;
  /// Bytes in the file, what was there before included.
  [[nodiscard]] std::uint64_t size() const noexcept { return tally_.size; }
  /// What this writer added to the file, its file header included.
  [[nodiscard]] std::uint64_t bytes_written() const noexcept { return tally_.size - size_before_; }
  [[nodiscard]] const FileTally& tally() const noexcept { return tally_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const char* output_name() const noexcept { return output_->name(); }
  /// False when the file was removed.
  [[nodiscard]] bool still_there() const noexcept;

 protected:
  /// With a guard, the file has whole records also after a kill.
  PacketWriter(std::unique_ptr<FileOutput> output, TailGuard* guard);

  /// Open and lock `path`. Returns whether it is new. A file that must not exist appears with
  /// `begin_records`, where the file system allows. Throws Error.
  bool open_file(const std::string& path, bool may_exist);
  /// The open file has `size` bytes now, `before` of which were there when it was opened. Throws
  /// Error: INVALID_PARAMETER when a file of that name has appeared, GENERIC_FAILURE.
  void begin_records(std::uint64_t size, std::uint64_t before);
  /// Leave the file as it is; no error.
  void let_go() noexcept { file_.close(); }
  [[nodiscard]] int fd() const noexcept { return file_.fd(); }

  /// Put a packet into the batch, which has room for it.
  virtual void add(RecordBatch& batch, const Burst& burst, PacketPrefixes& prefixes,
                   std::uint32_t packet, std::uint64_t time) noexcept = 0;
  /// The records of `batch` are about to be put into the file, all or the first of them. Returns
  /// errno.
  virtual int prepare(const RecordBatch& /*batch*/) noexcept { return 0; }
  /// The first `whole.packets` packets are in the file. Returns errno.
  virtual int landed(const FileTally& /*whole*/) noexcept { return 0; }
  /// What belongs to the file ends with it. Returns errno.
  virtual int end(bool /*durable*/) noexcept { return 0; }

 private:
  /// Give a new file its name, now that its header is there: a kill leaves no file without one.
  void appear();
  void flush() noexcept;
  void note_landed() noexcept;
  void fail(const char* action, int error_number) noexcept;
  /// Only what is in the file and not behind `limit` stays.
  void cut(const FileTally& limit) noexcept;

  std::unique_ptr<FileOutput> output_;
  TailGuard* guard_;
  std::unique_ptr<RecordBatch> batch_;
  File file_;
  std::string path_;
  bool named_{false};
  std::uint64_t size_before_{0};
  FileTally tally_;
  bool failed_{false};
  const char* failed_action_{""};
  int failed_errno_{0};
  int cut_errno_{0};
};

/// Throws Error INVALID_PARAMETER: `path` exists and `what`.
[[noreturn]] void refuse_existing(const std::string& path, const std::string& what);

}  // namespace daqiri
