/// Writes packets to a file in gathered writes; long packets are not copied.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "burst/burst.h"
#include "net/link_layer.h"

namespace daqiri {

/// Contents of a file up to the end of one of its records, written by one writer. Records that the
/// file had before count in `size` only.
struct FileTally {
  /// Bytes of the file.
  std::uint64_t size{0};
  std::uint64_t packets{0};
  /// Bytes on the wire, including reconstructed headers (the sum of the records' original lengths).
  std::uint64_t bytes{0};
  /// For files of frames: frames, and their missing packets; `packets` are those they contain.
  std::uint64_t frames{0};
  std::uint64_t missing{0};
  /// Times of the first and the last record, ns; -1: none.
  std::int64_t t_first_ns{-1};
  std::int64_t t_last_ns{-1};

  /// One more packet, with which the file ends at `end`.
  void add(std::uint64_t end, std::uint32_t wire_length, std::uint64_t time) noexcept {
    size = end;
    bytes += wire_length;
    t_last_ns = static_cast<std::int64_t>(time);
    if (t_first_ns < 0) t_first_ns = t_last_ns;
    ++packets;
  }
};

/// A few thousand records: pieces for one writev, and marks where each record ends.
class RecordBatch {
 public:
  struct Mark {
    /// Bytes of the batch up to the end of the record.
    std::uint32_t end;
    std::uint32_t wire_length;
    std::uint64_t time;
    std::uint32_t flow;
  };
  /// Longest header before a packet.
  static constexpr std::size_t MAX_HEADER = 16;
  static constexpr std::size_t MAX_RECORDS = 2048;

  /// Clear the batch; the next record follows `before`.
  void begin(const FileTally& before) noexcept {
    before_ = before;
    num_pieces_ = num_records_ = staged_ = stretch_ = 0;
    bytes_ = 0;
    all_copied_ = true;
  }
  /// Whether any record can be added.
  [[nodiscard]] bool has_room() const noexcept {
    return num_records_ < MAX_RECORDS && bytes_ < FULL &&
           num_pieces_ + WORST_PIECES <= MAX_PIECES && staged_ + WORST_STAGING <= STAGING;
  }
  /// Where headers are written before `stage` adds them.
  [[nodiscard]] std::byte* room() noexcept { return staging_.data() + staged_; }
  void stage(std::uint32_t size) noexcept {
    staged_ += size;
    bytes_ += size;
  }
  /// Add bytes of a packet, which must stay valid until the batch is written.
  void put(void* data, std::uint32_t size) noexcept {
    if (size == 0) return;
    if (size < COPY_BELOW) {
      std::memcpy(room(), data, size);
      return stage(size);
    }
    end_stretch();
    pieces_[num_pieces_++] = {data, size};
    bytes_ += size;
    all_copied_ = false;
  }
  /// Whether no record needs the memory of its packet any more.
  [[nodiscard]] bool all_copied() const noexcept { return all_copied_; }
  void end_record(std::uint32_t wire_length, std::uint64_t time, std::uint32_t flow) noexcept {
    marks_[num_records_++] = {bytes_, wire_length, time, flow};
  }
  /// All bytes in order; the writer may change the pieces.
  [[nodiscard]] std::span<iovec> pieces() noexcept {
    end_stretch();
    return {pieces_.data(), num_pieces_};
  }
  [[nodiscard]] std::span<const Mark> records() const noexcept {
    return {marks_.data(), num_records_};
  }
  [[nodiscard]] std::uint32_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] const FileTally& before() const noexcept { return before_; }
  /// The tally of records that are complete after the first `bytes` of the batch.
  [[nodiscard]] FileTally tally_at(std::uint64_t bytes) const noexcept {
    FileTally tally = before_;
    for (const Mark& mark : records()) {
      if (mark.end > bytes) break;
      tally.add(before_.size + mark.end, mark.wire_length, mark.time);
    }
    return tally;
  }

 private:
  static constexpr std::size_t MAX_PIECES = 1024;  // IOV_MAX of Linux
  /// Longer writes gain nothing, and make the page cache allocate larger pieces of memory than the
  /// next file will find.
  static constexpr std::uint32_t FULL = std::uint32_t{1} << 20U;
  static constexpr std::size_t STAGING = std::size_t{96} * 1024;
  /// Shorter segments are copied after their record header, because a separate piece costs the
  /// kernel more.
  static constexpr std::uint32_t COPY_BELOW = 512;
  static constexpr std::size_t WORST_STAGING =
      MAX_HEADER + MAX_LINK_PREFIX + std::size_t{MAX_NUM_SEGS} * COPY_BELOW;
  /// For each segment, a stretch of the staging area and the segment itself.
  static constexpr std::size_t WORST_PIECES = 2 * MAX_NUM_SEGS + 1;

  void end_stretch() noexcept {
    if (staged_ == stretch_) return;
    pieces_[num_pieces_++] = {staging_.data() + stretch_, staged_ - stretch_};
    stretch_ = staged_;
  }

  std::array<iovec, MAX_PIECES> pieces_;
  std::array<Mark, MAX_RECORDS> marks_;
  std::array<std::byte, STAGING> staging_;
  FileTally before_;
  std::size_t num_pieces_{0};
  std::size_t num_records_{0};
  std::size_t staged_{0};
  /// Begin of the stretch of the staging area that has no piece yet.
  std::size_t stretch_{0};
  std::uint32_t bytes_{0};
  bool all_copied_{true};
};

/// Headers before the packets of one burst; identical consecutive headers are computed once.
class PacketPrefixes {
 public:
  PacketPrefixes(const LinkLayer& link, const Burst& burst) noexcept
      : link_(link),
        burst_(burst),
        none_(!link.reconstructs_headers()),
        repeats_(link.prefix_repeats()) {}

  /// See LinkLayer::prefix.
  std::uint32_t write(std::uint32_t packet, std::byte* out) noexcept {
    if (none_) return 0;
    if (!repeats_) return link_.prefix(burst_, packet, out);
    const std::uint32_t length = burst_.packet_length(packet);
    if (size_ == 0 || length != length_) {
      size_ = link_.prefix(burst_, packet, latest_.data());
      length_ = length;
    }
    std::memcpy(out, latest_.data(), size_);
    return size_;
  }

 private:
  const LinkLayer& link_;
  const Burst& burst_;
  bool none_;
  bool repeats_;
  /// Prefix of the latest packet, and the length of that packet; size 0: none yet.
  std::array<std::byte, MAX_LINK_PREFIX> latest_;
  std::uint32_t size_{0};
  std::uint32_t length_{0};
};

enum class WriterKind : std::uint8_t { BUFFERED, DIRECT, AUTO, CUFILE };

/// Alignment of addresses, lengths and offsets of direct writes; every disk accepts it.
inline constexpr std::size_t DIRECT_PAGE = 4096;
constexpr std::uint64_t whole_pages(std::uint64_t bytes) noexcept {
  return (bytes + DIRECT_PAGE - 1) / DIRECT_PAGE * DIRECT_PAGE;
}

/// Allocates disk blocks after the end of a growing file, in large pieces: the file is less
/// fragmented, and the kernel has less work per page. The size of the file does not change.
///
/// Allocates as much again as the file has, up to a limit and not for small files. If the file
/// system does not support this, or the disk is full, the file grows without it.
class Preallocation {
 public:
  /// Begin with the open file `fd`, whose data end at `size`.
  void begin(int fd, std::uint64_t size) noexcept;
  /// Data up to `end` are about to be written.
  void reserve(std::uint64_t end) noexcept;
  /// Free the blocks after `size` by truncating the file. Returns errno, 0: done, or nothing to
  /// free.
  int trim(std::uint64_t size) noexcept;

 private:
  /// A shorter file gets no blocks in advance.
  static constexpr std::uint64_t LEAST = std::uint64_t{1} << 20U;
  static constexpr std::uint64_t MOST = std::uint64_t{64} << 20U;

  int fd_{-1};
  std::uint64_t end_{0};
  bool possible_{false};
};

/// Appends batches of records to a file. One file at a time, one thread.
class FileOutput {
 public:
  FileOutput() = default;
  FileOutput(const FileOutput&) = delete;
  FileOutput& operator=(const FileOutput&) = delete;
  virtual ~FileOutput() = default;

  /// "buffered", "direct"
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// Continue after the first `whole.size` bytes of the open file `fd` at `path`. Returns errno, 0:
  /// success.
  virtual int begin(int fd, const std::string& path, const FileTally& whole) noexcept = 0;
  /// Accept a batch. Returns errno, 0: accepted; after an error only `sync` and `begin` may be
  /// called.
  virtual int put(RecordBatch& batch) noexcept = 0;
  /// Wait until all accepted batches are in the file. Returns errno, 0: success. After an error of
  /// `sync` or `put`, no write is in flight.
  virtual int sync() noexcept = 0;
  /// The file is about to be closed.
  virtual void end() noexcept {}
  /// Free blocks allocated after the end of the file; call after a `sync` without error. Returns
  /// errno.
  int trim() noexcept { return preallocation_.trim(whole_.size); }
  /// What is in the file now, even if the process is killed.
  [[nodiscard]] const FileTally& whole() const noexcept { return whole_; }

 protected:
  FileTally whole_;
  Preallocation preallocation_;
};

/// Through the page cache, directly from the packets' memory.
std::unique_ptr<FileOutput> buffered_output(bool preallocates = false);

/// Whether to retry a failed direct write through the page cache: for errors of direct access, or
/// if the retry reports the reason. For other errors, a retry could hide the error.
[[nodiscard]] bool direct_write_refused(int problem) noexcept;

/// Returns `wanted` as BUFFERED or DIRECT, depending on the file system of `directory`; `why_not`:
/// why DIRECT (requested or by AUTO) is impossible.
WriterKind possible_writer(WriterKind wanted, const std::string& directory, std::string& why_not);

/// For files that grow: with preallocation. Throws Error if no more threads can be started.
std::unique_ptr<FileOutput> make_output(WriterKind kind);

}  // namespace daqiri
