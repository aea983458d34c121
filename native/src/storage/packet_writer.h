/// Bursts to a file, whatever its format.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "burst/burst.h"
#include "net/link_layer.h"
#include "storage/file_output.h"
#include "storage/record_batch.h"
#include "system/file.h"

namespace daqiri {

/// The headers that go before the packets of one burst; written once for neighbours that have the
/// same.
class PacketPrefixes {
 public:
  PacketPrefixes(const LinkLayer& link, const Burst& burst) noexcept
      : link_(link),
        burst_(burst),
        none_(!link.reconstructs_headers()),
        repeats_(link.prefix_repeats()) {}

  /// As LinkLayer::prefix.
  std::uint32_t write(std::uint32_t packet, std::byte* out) noexcept;

 private:
  const LinkLayer& link_;
  const Burst& burst_;
  bool none_;
  bool repeats_;
  /// Prefix of the latest packet, and how long that packet was; size 0: none yet.
  std::array<std::byte, MAX_LINK_PREFIX> latest_;
  std::uint32_t size_{0};
  std::uint32_t length_{0};
};

/// A new file, locked, that gets its name once its header is in it, where the file system has files
/// without names. It goes away with its owner unless it is taken.
class NewFile {
 public:
  /// Throws Error: INVALID_PARAMETER when `path` exists, GENERIC_FAILURE.
  explicit NewFile(std::string path);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  [[nodiscard]] int fd() const noexcept { return file_.fd(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Give it its name. Throws Error INVALID_PARAMETER when a file of that name has appeared.
  void appear();
  File take() noexcept { return std::move(file_); }

 private:
  std::string path_;
  File file_;
  bool named_{false};
};

/// Writes one file at a time; buffers are kept from file to file. One thread.
///
/// A file is locked (flock) while it is open; forked children do not keep the lock. A failed write
/// cuts the file to whole records and ends it: later writes are refused until `retry`, `error`
/// tells the first problem.
class PacketWriter {
 public:
  static constexpr std::uint64_t NO_LIMIT = std::numeric_limits<std::uint64_t>::max();

  PacketWriter(const PacketWriter&) = delete;
  PacketWriter& operator=(const PacketWriter&) = delete;
  virtual ~PacketWriter() = default;

  /// How names of files end: ".pcap".
  [[nodiscard]] virtual const char* suffix() const noexcept = 0;
  /// Make the file `path` ready for `create`, while another one may be open: all that can be
  /// refused is done now, and nothing is seen of it yet. Throws Error: INVALID_PARAMETER when it
  /// exists, GENERIC_FAILURE with path and errno.
  virtual void prepare(const std::string& path) = 0;
  virtual void discard_prepared() noexcept { next_.reset(); }
  /// Begin the file `path`, which must not exist, prepared or not. Throws as `prepare`.
  void create(const std::string& path);

  /// Write packets [first, first + count) of `burst`, stopping behind the record with which the
  /// file reaches `size_limit` bytes. Returns how many packets were taken, none of them after an
  /// error: `tally` then tells what the file has, which may be less than was taken before.
  std::uint32_t write(const Burst& burst, const LinkLayer& link, std::uint32_t first,
                      std::uint32_t count, std::uint64_t size_limit = NO_LIMIT) noexcept;

  /// Wait until what was taken is in the file.
  void sync() noexcept;
  /// After a failed write: go on in the same file. False when that is not possible.
  bool retry() noexcept;

  /// End the file; `durable`: once the disk has it. A problem is in `error`. Idempotent.
  void close(bool durable = false) noexcept;

  /// Remove the open file, with all that belongs to it, unless another file has its name by now.
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
  explicit PacketWriter(std::unique_ptr<FileOutput> output);

  /// What is prepared, for its header.
  NewFile& prepare_file(const std::string& path);
  /// Give what is prepared its name. Throws Error.
  virtual void appear() { next_->appear(); }
  /// Write to `file`, `before` bytes of whose `size` were there when it was opened. Throws Error.
  void begin(File file, const std::string& path, std::uint64_t size, std::uint64_t before);
  [[nodiscard]] int fd() const noexcept { return file_.fd(); }

  /// Put a packet into the batch, which has room for it.
  virtual void add(RecordBatch& batch, const Burst& burst, PacketPrefixes& prefixes,
                   std::uint32_t packet, std::uint64_t time) noexcept = 0;
  /// The records of `batch` are about to be put into the file, all or the first of them. Returns
  /// errno.
  virtual int before_put(const RecordBatch& /*batch*/) noexcept { return 0; }
  /// The first `whole.packets` packets are in the file. Returns errno.
  virtual int after_put(const FileTally& /*whole*/) noexcept { return 0; }
  /// The file ends as it is, without error so far. Returns errno.
  virtual int end(bool /*durable*/) noexcept { return 0; }

 private:
  void put_batch() noexcept;
  void confirm() noexcept;
  void fail(const char* action, int error_number) noexcept;
  /// Only what is in the file and not behind `limit` stays.
  void cut(const FileTally& limit) noexcept;

  std::unique_ptr<FileOutput> output_;
  std::unique_ptr<RecordBatch> batch_;
  std::unique_ptr<NewFile> next_;
  File file_;
  std::string path_;
  std::uint64_t size_before_{0};
  FileTally tally_;
  bool failed_{false};
  const char* failed_action_{""};
  int failed_errno_{0};
  int cut_errno_{0};
};

/// Locks the open file, which is private to the process, for its only writer. Throws Error
/// INVALID_PARAMETER for what is no regular file, NOT_READY while somebody else writes it.
void lock_for_writing(const File& file, const std::string& path);
/// Throws Error INVALID_PARAMETER: `path` exists and `what`.
[[noreturn]] void refuse_existing(const std::string& path, const std::string& what);

}  // namespace daqiri
