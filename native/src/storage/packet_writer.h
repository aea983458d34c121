/// Bursts to pcap and raw files.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "storage/file_output.h"
#include "storage/pcap_index.h"
#include "system/file.h"

namespace daqiri {

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

/// Bytes of packets and nothing else, with a RawIndex beside them; the first `packet_data_offset`
/// bytes of each packet are left out.
struct RawFormat {
  std::uint64_t packet_data_offset{0};
};

/// <path>.npy, a NumPy array (format 1.0) with a row for each packet of the file <path>: offset
/// (u8), length (u4), flow (u4), timestamp in ns (u8), little-endian. numpy.load reads it,
/// memory-mapped or not.
///
/// A row is written before its packet is and counted, in the header of the index, when the packet
/// is in the file: at any moment all rows that are counted tell the truth.
class RawIndex {
 public:
  struct Row {
    std::uint64_t offset;
    std::uint32_t length;
    std::uint32_t flow;
    std::uint64_t timestamp;
  };

  RawIndex() { rows_.reserve(RecordBatch::MAX_RECORDS); }
  static std::string path_of(const std::string& path) { return path + ".npy"; }

  // All return errno, 0: fine.

  /// To `fd`.
  static int write_header(int fd, std::uint64_t rows) noexcept;
  /// Write to `file`, which has its header.
  void begin(File file) noexcept;
  /// The records of `batch` are about to be put into the file, all or the first of them.
  int add(const RecordBatch& batch) noexcept;
  /// The first `packets` packets are in the file.
  int count(std::uint64_t packets) noexcept;
  int end(bool durable) noexcept;
  /// Remove it, ended or not, from beside the file `path`, unless another file has its name by now.
  void remove(const std::string& path) noexcept;

 private:
  /// A multiple of 64, as the format asks for, and within one page: it is written in one piece.
  static constexpr std::size_t HEADER_SIZE = 192;

  File file_;
  /// Which file that is, or was.
  struct stat own_{};
  std::vector<Row> rows_;
  std::uint64_t counted_{0};
  /// Of the last write of its header; 0: it says `counted_`.
  int header_errno_{0};
};
static_assert(sizeof(RawIndex::Row) == 24);

/// Writes one file at a time; buffers are kept from file to file. One thread.
///
/// A file is locked (flock) while it is open; forked children do not keep the lock. A failed write
/// cuts the file to whole records and ends it: later writes are refused until `retry`, `error`
/// tells the first problem.
class PacketWriter {
 public:
  static constexpr std::uint64_t NO_LIMIT = std::numeric_limits<std::uint64_t>::max();

  /// Of classic pcap files; longer packets than SNAP_LENGTH are cut.
  explicit PacketWriter(const pcap::Format& format = {},
                        std::unique_ptr<FileOutput> output = buffered_output());
  explicit PacketWriter(const RawFormat& format,
                        std::unique_ptr<FileOutput> output = buffered_output());
  PacketWriter(const PacketWriter&) = delete;
  PacketWriter& operator=(const PacketWriter&) = delete;
  ~PacketWriter() { close(); }

  /// How names of files end: ".pcap", ".raw".
  [[nodiscard]] const char* suffix() const noexcept { return index_ ? ".raw" : ".pcap"; }
  /// Bytes of a file without packets.
  [[nodiscard]] std::size_t header_size() const noexcept {
    return index_ ? 0 : sizeof(pcap::FileHeader);
  }
  /// Make the file `path` ready for `create`, while another one may be open: all that can be
  /// refused is done now, and nothing is seen of it yet. Throws Error: INVALID_PARAMETER when it
  /// exists, GENERIC_FAILURE with path and errno.
  void prepare(const std::string& path);
  void discard_prepared() noexcept;
  /// Begin the file `path`, which must not exist, prepared or not. Throws as `prepare`.
  void create(const std::string& path);
  /// Begin the pcap file `path`, with the file header where it is new or empty. `longest` is the
  /// longest record that an existing file must take (at most pcap::SNAP_LENGTH). A torn record at
  /// its end, which a killed writer has left, is cut off. Throws Error, leaving an existing file as
  /// it was: INVALID_PARAMETER when it is of another kind or damaged, NOT_READY when somebody else
  /// writes it, GENERIC_FAILURE with path and errno.
  void append(const std::string& path, std::uint32_t longest = 0);

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
  /// Remove the open file, and the index that belongs to it also when it is closed, unless other
  /// files have their names by now.
  void remove() noexcept;

  [[nodiscard]] bool failed() const noexcept { return errno_ != 0; }
  /// The first problem with the file, with path and errno text; empty: none.
  [[nodiscard]] std::string error() const;
  /// Bytes in the file, what was there before included.
  [[nodiscard]] std::uint64_t size() const noexcept { return tally_.size; }
  /// What this writer added to the file, its file header included.
  [[nodiscard]] std::uint64_t bytes_written() const noexcept { return tally_.size - size_before_; }
  [[nodiscard]] const FileTally& tally() const noexcept { return tally_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const char* output_name() const noexcept { return output_->name(); }
  /// False when the file was removed, or somebody cut it: a hole would follow.
  [[nodiscard]] bool still_there() const noexcept;

 private:
  /// Write to `file`, `before` bytes of whose `size` were there when it was opened. Throws Error.
  void begin(File file, const std::string& path, std::uint64_t size, std::uint64_t before);
  /// Returns where to go on in an existing file of `size` bytes. Throws Error.
  std::uint64_t require_compatible(int fd, const std::string& path, std::uint64_t size,
                                   std::uint32_t longest);
  /// Put a packet into the batch, which has room for it.
  void add(const Burst& burst, PacketPrefixes& prefixes, std::uint32_t packet,
           std::uint64_t time) noexcept;
  void put_batch() noexcept;
  /// Tell the index what is in the file. Returns errno.
  int count_rows() noexcept;
  /// Keep the first problem; errno 0 is none.
  void fail(int error_number, const char* action = "cannot write") noexcept;
  /// Fail, and cut the file to the records that are in it.
  void cut(int error_number) noexcept;

  pcap::Format format_;
  std::uint64_t skip_{0};
  std::unique_ptr<FileOutput> output_;
  std::unique_ptr<RecordBatch> batch_;
  /// Of raw files.
  std::optional<RawIndex> index_;
  std::unique_ptr<NewFile> next_;
  std::unique_ptr<NewFile> next_index_;
  File file_;
  std::string path_;
  /// More bytes of a packet do not go into the file.
  std::uint32_t snap_length_{pcap::SNAP_LENGTH};
  std::uint64_t size_before_{0};
  FileTally tally_;
  const char* failed_action_{""};
  int errno_{0};
  int cut_errno_{0};
};

/// Throws Error INVALID_PARAMETER: `path` exists and `what`.
[[noreturn]] void refuse_existing(const std::string& path, const std::string& what);

}  // namespace daqiri
