/// Writes bursts to pcap and raw files.
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
#include "storage/new_file.h"
#include "storage/pcap_index.h"
#include "storage/record_writer.h"
#include "system/file.h"

namespace daqiri {

/// Only the bytes of packets, with a separate RawIndex; the first `packet_data_offset` bytes of
/// each packet are omitted.
struct RawFormat {
  std::uint64_t packet_data_offset{0};
};

/// <path>.npy, a NumPy array (format 1.0) with a row for each packet of the file <path>: offset
/// (u8), length (u4), flow (u4), timestamp in ns (u8), little-endian. numpy.load reads it,
/// memory-mapped or not.
///
/// A row is written before its packet. The header of the index counts it after the packet is in the
/// file, so that all counted rows are always correct.
class RawIndex {
 public:
  struct Row {
    std::uint64_t offset;
    std::uint32_t length;
    std::uint32_t flow;
    std::uint64_t timestamp;
  };

  /// A multiple of 64, as the format requires, and within one page, so that it is written in one
  /// piece.
  static constexpr std::size_t HEADER_SIZE = 192;
  using Header = std::array<char, HEADER_SIZE>;

  RawIndex() { rows_.reserve(RecordBatch::MAX_RECORDS); }
  static std::string path_of(const std::string& path) { return path + ".npy"; }
  static Header header_of(std::uint64_t rows) noexcept;

  // All return errno, 0: success.

  /// Write the header to `fd`.
  static int write_header(int fd, std::uint64_t rows) noexcept;
  /// Write to `file`, which already has its header.
  void begin(File file) noexcept;
  /// All or the first records of `batch` are about to be put into the file.
  int add(const RecordBatch& batch) noexcept;
  /// The first `packets` packets are in the file.
  int count(std::uint64_t packets) noexcept;
  int end(bool durable) noexcept;
  /// Remove the index of the file `path`, unless another file has its name now.
  void remove(const std::string& path) noexcept;

 private:
  File file_;
  /// Of the index file.
  FileIdentity own_;
  std::vector<Row> rows_;
  std::uint64_t counted_{0};
  /// errno of the last write of the header; 0: the header contains `counted_`.
  int header_errno_{0};
};
static_assert(sizeof(RawIndex::Row) == 24);

/// Writes packets to pcap and raw files; reuses its buffers for each file.
///
/// A file is locked (flock) while it is open; forked children do not keep the lock. After a failed
/// write, the file is cut to whole records.
class PacketWriter final : public RecordWriter {
 public:
  /// Writes classic pcap files; packets longer than SNAP_LENGTH are truncated.
  explicit PacketWriter(const pcap::Format& format = {},
                        std::unique_ptr<FileOutput> output = buffered_output());
  explicit PacketWriter(const RawFormat& format,
                        std::unique_ptr<FileOutput> output = buffered_output());
  ~PacketWriter() override { close(); }

  /// Link layer of the packets for RecordWriter::write; must outlive the writer.
  void set_link(const LinkLayer& link) noexcept { link_ = &link; }
  [[nodiscard]] const char* suffix() const noexcept override { return index_ ? ".raw" : ".pcap"; }
  [[nodiscard]] std::size_t header_size() const noexcept override {
    return index_ ? 0 : sizeof(pcap::FileHeader);
  }
  void prepare(const std::string& path) override;
  void discard_prepared() noexcept override;
  void create(const std::string& path) override;
  /// Open the pcap file `path`; write the file header if it is new or empty. `longest`: the longest
  /// record that an existing file must accept (at most pcap::SNAP_LENGTH). A torn record at its
  /// end, left by a killed writer, is cut off. Throws Error without changing an existing file:
  /// INVALID_PARAMETER if it has another format or is damaged, NOT_READY while another writer has
  /// it, GENERIC_FAILURE with path and errno.
  void append(const std::string& path, std::uint32_t longest = 0);

  std::uint32_t write(const Burst& burst, const LinkLayer& link, std::uint32_t first,
                      std::uint32_t count, std::uint64_t size_limit = NO_LIMIT) noexcept;
  std::uint32_t write(const Burst& burst, std::uint32_t first, std::uint32_t count,
                      std::uint64_t size_limit) noexcept override;
  void fetch(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept override;

  [[nodiscard]] bool holds_back() const noexcept override { return held_back_; }
  void put_held_back() noexcept override { put_batch(); }
  void sync() noexcept override;
  bool retry() noexcept override;

  void close() noexcept { close(false); }
  void close(bool durable) noexcept override;
  /// Also removes the index, even if the file is closed.
  void remove() noexcept override;

  [[nodiscard]] bool failed() const noexcept override { return errno_ != 0 || gone_; }
  [[nodiscard]] std::string error() const override;
  /// Bytes of the file with the records that are held back, and with what it had before.
  [[nodiscard]] std::uint64_t size() const noexcept override { return tally_.size; }
  /// Those of these bytes that are of this writer, including the file header.
  [[nodiscard]] std::uint64_t bytes_written() const noexcept { return tally_.size - size_before_; }
  [[nodiscard]] const FileTally& tally() const noexcept override { return tally_; }
  [[nodiscard]] std::uint64_t records() const noexcept override { return tally_.packets; }
  [[nodiscard]] std::uint64_t flushed() const noexcept override { return output_->whole().packets; }
  [[nodiscard]] const std::string& path() const noexcept override { return path_; }
  [[nodiscard]] const char* output_name() const noexcept override { return output_->name(); }
  [[nodiscard]] bool still_there() const noexcept override;

 private:
  /// Start writing to `file`; `before` of its `size` bytes existed when it was opened. Throws
  /// Error.
  void begin(File file, const std::string& path, std::uint64_t size, std::uint64_t before);
  /// Returns the offset at which to continue in an existing file of `size` bytes. Throws Error.
  std::uint64_t require_compatible(int fd, const std::string& path, std::uint64_t size,
                                   std::uint32_t longest);
  /// Add a packet to the batch, which has space for it.
  void add(const Burst& burst, PacketPrefixes& prefixes, std::uint32_t packet,
           std::uint64_t time) noexcept;
  /// Put the records of the batch into the file.
  void put_batch() noexcept;
  /// Update the number of packets in the index. Returns errno.
  int count_rows() noexcept;
  /// Store the first error; errno 0 means none.
  void fail(int error_number, const char* action = "cannot write") noexcept;
  /// Fail, and cut the file to its whole records.
  void cut(int error_number) noexcept;

  pcap::Format format_;
  std::uint64_t skip_{0};
  const LinkLayer* link_{nullptr};
  std::unique_ptr<FileOutput> output_;
  std::unique_ptr<RecordBatch> batch_;
  /// Whether the batch has records from earlier calls of `write`.
  bool held_back_{false};
  /// The file was not there any more when they were to be put into it.
  bool gone_{false};
  /// For raw files.
  std::optional<RawIndex> index_;
  std::unique_ptr<NewFile> next_;
  std::unique_ptr<NewFile> next_index_;
  File file_;
  /// Also after it was closed.
  FileIdentity own_;
  std::string path_;
  /// Longer packets are truncated to this many bytes.
  std::uint32_t snap_length_{pcap::SNAP_LENGTH};
  std::uint64_t size_before_{0};
  FileTally tally_;
  /// Why packets could not be read from a GPU; empty: they were.
  std::string unread_;
  const char* failed_action_{""};
  int errno_{0};
  int cut_errno_{0};
};

}  // namespace daqiri
