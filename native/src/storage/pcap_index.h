/// The classic pcap file format, version 2.4 (IETF draft-ietf-opsawg-pcap), an index of the
/// positions of its packets, and the related format pcapng.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "system/mapped_file.h"
#include "system/pages.h"

namespace daqiri {

namespace pcap {

inline constexpr std::uint32_t MAGIC_MICROSECOND = 0xA1B2C3D4U;
inline constexpr std::uint32_t MAGIC_NANOSECOND = 0xA1B23C4DU;
/// Largest packet in files that this library writes; libpcap's own limit.
inline constexpr std::uint32_t SNAP_LENGTH = 262'144;
/// A longer record is treated as damage.
inline constexpr std::uint32_t MAX_RECORD = 256U << 20U;

struct FileHeader {
  std::uint32_t magic{MAGIC_MICROSECOND};
  std::uint16_t version_major{2};
  std::uint16_t version_minor{4};
  std::int32_t zone{0};
  std::uint32_t accuracy{0};
  std::uint32_t snap_length{SNAP_LENGTH};
  std::uint32_t link_type{0};
};
static_assert(sizeof(FileHeader) == 24);

struct RecordHeader {
  std::uint32_t seconds{0};
  /// Microseconds or nanoseconds.
  std::uint32_t fraction{0};
  std::uint32_t captured{0};
  std::uint32_t original{0};
  bool operator==(const RecordHeader&) const = default;
  [[nodiscard]] RecordHeader swapped() const noexcept {
    return {__builtin_bswap32(seconds), __builtin_bswap32(fraction), __builtin_bswap32(captured),
            __builtin_bswap32(original)};
  }
};
static_assert(sizeof(RecordHeader) == 16);

/// Contents of a file header.
struct Format {
  /// 1: Ethernet.
  std::uint32_t link_type{1};
  bool nanosecond{false};
  std::uint32_t snap_length{SNAP_LENGTH};
  /// Whether the file has the other byte order.
  bool swapped{false};
};

/// The header of a file in this machine's byte order.
FileHeader header_of(const Format& format) noexcept;
/// Read the header at `data`. Throws Error INVALID_PARAMETER with `name` and the bytes found.
Format read_header(const std::uint8_t* data, std::uint64_t size, const std::string& name);

// --- Records

/// Iterates over records: in memory, mapped or not, of which it reads record headers only; or in an
/// open file, which it reads in windows.
class Records {
 public:
  Records(const std::uint8_t* data, std::uint64_t size) noexcept
      : size_(size), window_(data), end_(size) {}
  /// `fd` must stay open; `name` is used in errors.
  Records(int fd, std::uint64_t size, std::string name)
      : size_(size),
        fd_(fd),
        name_(std::move(name)),
        buffer_(std::make_unique_for_overwrite<std::uint8_t[]>(WINDOW)),
        window_(buffer_.get()) {}
  /// Whether reading windows is faster for the file `fd`. On tmpfs, whose pages are mapped one by
  /// one, copying all bytes is cheaper than mapping the pages of the headers.
  static bool pays(int fd) noexcept;

  // All throw Error GENERIC_FAILURE, with name and errno, if an open file cannot be read.

  /// The record header at `at`, which must be inside; `step` is the length of the previous record.
  RecordHeader read(std::uint64_t at, std::uint64_t step) {
    if (at < begin_ || at + sizeof(RecordHeader) > end_)
      fill(at, sizeof(RecordHeader), step < LONG_RECORD ? WINDOW : sizeof(RecordHeader));
    RecordHeader header;
    std::memcpy(&header, window_ + (at - begin_), sizeof header);
    return header;
  }
  /// Call `take`(offset, header) for each whole record from `at` on, as long as it returns true.
  /// Returns the offset after the last accepted record.
  template <bool SWAPPED, typename Take>
  std::uint64_t walk(std::uint64_t at, Take&& take) {
    std::uint64_t step = 0;
    while (size_ - at >= sizeof(RecordHeader)) {
      RecordHeader record = read(at, step);
      if constexpr (SWAPPED) record = record.swapped();
      step = sizeof record + record.captured;
      if (record.captured > MAX_RECORD || step > size_ - at || !take(at, record)) break;
      at += step;
    }
    return at;
  }
  /// Offset of the first nonzero byte at or after `at`; size(): there is none.
  std::uint64_t zeros_end(std::uint64_t at);
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t WINDOW = std::size_t{256} * 1024;
  /// For longer records, one read per header is cheaper than copying the bytes between headers.
  static constexpr std::uint64_t LONG_RECORD = std::uint64_t{6} * 1024;

  /// Read between `least` and `most` bytes.
  void fill(std::uint64_t at, std::size_t least, std::size_t most);

  std::uint64_t size_;
  int fd_{-1};
  std::string name_;
  std::unique_ptr<std::uint8_t[]> buffer_;
  /// Bytes [begin_, end_) of the file.
  const std::uint8_t* window_;
  std::uint64_t begin_{0};
  std::uint64_t end_{0};
};

/// Offset after the last whole record of the pcap file `fd`, which has `size` bytes and a valid
/// header in this machine's byte order. Throws Error GENERIC_FAILURE with `name` and errno.
std::uint64_t whole_records_end(int fd, std::uint64_t size, const std::string& name);

}  // namespace pcap

// --- The index

/// An array that grows without copying its elements: the kernel remaps its pages. Memory counts as
/// used only after the first write, so that an oversized reservation costs nothing.
template <typename T>
class PageArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  /// Reserve space for `n` elements. Throws std::bad_alloc.
  void reserve(std::size_t n) {
    const std::size_t before = data_.get_deleter().size;
    if (n * sizeof(T) <= before) return;
    const std::size_t size =
        (std::max(n * sizeof(T), 2 * before) + GRANULE - 1) / GRANULE * GRANULE;
    if (before == 0) {
      data_ = map_pages<T>(size);
    } else {
      void* const moved = mremap(data_.get(), before, size, MREMAP_MAYMOVE);
      if (moved == MAP_FAILED) throw std::bad_alloc();
      static_cast<void>(data_.release());
      data_ = Pages<T>(static_cast<T*>(moved), UnmapPages{size});
    }
    // One page fault per 2 MiB instead of per 4 KiB, if the system allows it.
    if (size >= HUGE_PAGE) madvise(data_.get(), size, MADV_HUGEPAGE);
  }
  /// The caller sets elements up to `n`, in the reserved space.
  void set_size(std::size_t n) noexcept { size_ = n; }

  [[nodiscard]] T* data() noexcept { return data_.get(); }
  [[nodiscard]] const T* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] const T* begin() const noexcept { return data(); }
  [[nodiscard]] const T* end() const noexcept { return data() + size_; }

 private:
  /// In bytes; whole pages, for any element size.
  static constexpr std::size_t GRANULE = std::size_t{32} * 1024;
  static constexpr std::size_t HUGE_PAGE = std::size_t{2} << 20U;

  Pages<T> data_;
  std::size_t size_{0};
};

struct PcapIndex : pcap::Format {
  /// Byte offset of each packet's data in the file.
  PageArray<std::uint64_t> offsets;
  /// Bytes captured, and bytes on the wire.
  PageArray<std::uint32_t> lengths;
  PageArray<std::uint32_t> wire_lengths;
  /// ns since the epoch.
  PageArray<std::int64_t> timestamps;
  /// Bytes at the end that are no whole record and are omitted.
  std::uint64_t torn_bytes{0};
  /// Why the records end before the torn bytes: a record with an impossible length; empty: no
  /// damage.
  std::string damage;
};

/// Builds the index of classic pcap data step by step.
class PcapIndexer {
 public:
  /// `size` bytes at `data`. Throws Error INVALID_PARAMETER with `name` and the bytes found.
  PcapIndexer(const std::uint8_t* data, std::uint64_t size, const std::string& name);
  /// Reads the file instead of the mapping if that is faster. `file` must outlive the indexer.
  explicit PcapIndexer(const MappedFile& file);

  /// Process records for some milliseconds. Returns whether there may be more.
  bool advance();
  /// Call after the last `advance`.
  [[nodiscard]] PcapIndex take() noexcept { return std::move(index_); }

 private:
  /// Records per step; the mean size of the first ones is used as an estimate for the whole file.
  static constexpr std::size_t STEP = 16'384;

  template <bool SWAPPED>
  bool advance();
  bool zeros_begin(std::uint64_t at);
  template <typename Step>
  void for_each_array(Step&& step);

  pcap::Records records_;
  PcapIndex index_;
  /// Offset after the last whole record.
  std::uint64_t at_{sizeof(pcap::FileHeader)};
  /// Offset of the first nonzero byte after the range of zeros that was scanned last.
  std::uint64_t zeros_seen_{0};
};

/// Copy `n` packets, which begin at `offsets` in `data`, to rows of `width` bytes at `out`, padded
/// with zeros. No packet may be longer than `width`.
void gather_rows(const std::uint8_t* data, const std::int64_t* offsets,
                 const std::uint32_t* lengths, std::size_t n, std::uint8_t* out,
                 std::size_t width) noexcept;

// --- pcapng

/// Where a pcapng file ends.
struct PcapngEnd {
  /// Offset after the last whole block.
  std::uint64_t whole_bytes{0};
  /// Bytes after it, which are no whole block because the writer ended, or zeros of a crash.
  std::uint64_t torn_bytes{0};
};

/// Converts a pcapng file to a classic one in nanoseconds, step by step: from the open file `from`,
/// from its beginning, to the open, empty file `to`. `name` is used in errors. Throws Error
/// NOT_SUPPORTED without libpcap, INVALID_PARAMETER with libpcap's message.
///
/// Call the result until it returns false; `end` is then set. Each call takes some milliseconds. It
/// throws Error INVALID_PARAMETER, with the position, for a file that is damaged before its end,
/// and GENERIC_FAILURE if `to` cannot be written.
///
/// libpcap is loaded when the first such file is opened, so that other programs run without it.
std::function<bool()> pcapng_conversion(int from, int to, const std::string& name, PcapngEnd& end);

}  // namespace daqiri
