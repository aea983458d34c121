/// The classic pcap file format, version 2.4 (IETF draft-ietf-opsawg-pcap), an index of the
/// positions of its packets, and its relative pcapng.
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

namespace daqiri {

namespace pcap {

inline constexpr std::uint32_t MAGIC_MICROSECOND = 0xA1B2C3D4U;
inline constexpr std::uint32_t MAGIC_NANOSECOND = 0xA1B23C4DU;
/// Largest packet that a file of ours holds; libpcap's own limit.
inline constexpr std::uint32_t SNAP_LENGTH = 262'144;
/// A record that claims more is taken for garbage.
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

/// What a file header says.
struct Format {
  /// 1: Ethernet.
  std::uint32_t link_type{1};
  bool nanosecond{false};
  std::uint32_t snap_length{SNAP_LENGTH};
  /// The other byte order.
  bool swapped{false};
};

/// The header of a file of this machine's byte order.
FileHeader header_of(const Format& format) noexcept;
/// Read the header at `data`. Throws Error INVALID_PARAMETER naming `name` and what was found.
Format read_header(const std::uint8_t* data, std::uint64_t size, const std::string& name);

// --- Records

/// Walks from record to record: over bytes in memory, mapped or not, of which it touches the record
/// headers only, or through an open file, read in windows.
class Records {
 public:
  Records(const std::uint8_t* data, std::uint64_t size) noexcept
      : size_(size), window_(data), end_(size) {}
  /// `fd` stays open meanwhile, `name` is for errors.
  Records(int fd, std::uint64_t size, std::string name)
      : size_(size),
        fd_(fd),
        name_(std::move(name)),
        buffer_(std::make_unique_for_overwrite<std::uint8_t[]>(WINDOW)),
        window_(buffer_.get()) {}
  /// Whether the latter is the faster way to the headers of the file `fd`. On tmpfs, whose pages
  /// are mapped one by one, copying all bytes costs less than mapping the pages of the headers.
  static bool pays(int fd) noexcept;

  // All throw Error GENERIC_FAILURE, for an open file, with name and errno.

  /// The record header at `at`, which lies inside; `step` is the length of the record before it.
  RecordHeader read(std::uint64_t at, std::uint64_t step) {
    if (at < begin_ || at + sizeof(RecordHeader) > end_)
      fill(at, sizeof(RecordHeader), step < LONG_RECORD ? WINDOW : sizeof(RecordHeader));
    RecordHeader header;
    std::memcpy(&header, window_ + (at - begin_), sizeof header);
    return header;
  }
  /// Call `take`(offset, header) for each whole record from `at` on, as long as it returns true.
  /// Returns the offset behind the last one for which it did.
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
  /// Offset of the first byte from `at` on that is not zero; size(): there is none.
  std::uint64_t zeros_end(std::uint64_t at);
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t WINDOW = std::size_t{256} * 1024;
  /// From this length on, a call for each header is cheaper than a copy of what lies between.
  static constexpr std::uint64_t LONG_RECORD = std::uint64_t{6} * 1024;

  /// At least `least` of up to `most` bytes.
  void fill(std::uint64_t at, std::size_t least, std::size_t most);

  std::uint64_t size_;
  int fd_{-1};
  std::string name_;
  std::unique_ptr<std::uint8_t[]> buffer_;
  /// Bytes [begin_, end_).
  const std::uint8_t* window_;
  std::uint64_t begin_{0};
  std::uint64_t end_{0};
};

/// Offset behind the last whole record of the pcap file `fd`, which has `size` bytes and a valid
/// header of this machine's byte order. Throws Error GENERIC_FAILURE with `name` and errno.
std::uint64_t whole_records_end(int fd, std::uint64_t size, const std::string& name);

}  // namespace pcap

// --- The index

/// An array that grows without copying what it holds: the kernel moves its pages. Memory counts as
/// used from the first write on, so that a reserve that turns out too large costs nothing.
template <typename T>
class PageArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  /// Room for `n` elements. Throws std::bad_alloc.
  void reserve(std::size_t n) {
    const std::size_t before = data_.get_deleter().size;
    if (n * sizeof(T) <= before) return;
    const std::size_t size =
        (std::max(n * sizeof(T), 2 * before) + GRANULE - 1) / GRANULE * GRANULE;
    void* const moved = before == 0 ? mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                    : mremap(data_.get(), before, size, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) throw std::bad_alloc();
    static_cast<void>(data_.release());
    data_ = Pages(static_cast<T*>(moved), Unmap{size});
    // One fault per 2 MiB instead of per 4 KiB, where the system grants it.
    if (size >= HUGE_PAGE) madvise(moved, size, MADV_HUGEPAGE);
  }
  /// Elements up to `n` are set by the caller, in the room that is there.
  void set_size(std::size_t n) noexcept { size_ = n; }

  [[nodiscard]] T* data() noexcept { return data_.get(); }
  [[nodiscard]] const T* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] const T* begin() const noexcept { return data(); }
  [[nodiscard]] const T* end() const noexcept { return data() + size_; }

 private:
  /// In bytes; whole pages, of any element size.
  static constexpr std::size_t GRANULE = std::size_t{32} * 1024;
  static constexpr std::size_t HUGE_PAGE = std::size_t{2} << 20U;
  struct Unmap {
    std::size_t size{0};
    void operator()(T* data) const noexcept { munmap(data, size); }
  };
  using Pages = std::unique_ptr<T[], Unmap>;

  Pages data_;
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
  /// Bytes at the end that are no whole record and were left out.
  std::uint64_t torn_bytes{0};
  /// Empty, or why the records end before the torn bytes: a record's length that is impossible.
  std::string damage;
};

/// Makes the index of classic pcap data step by step.
class PcapIndexer {
 public:
  /// `size` bytes at `data`. Throws Error INVALID_PARAMETER naming `name` and what was found.
  PcapIndexer(const std::uint8_t* data, std::uint64_t size, const std::string& name);
  /// Reads the file instead of the mapping where that is faster. `file` outlives it.
  explicit PcapIndexer(const MappedFile& file);

  /// Some milliseconds' worth of records. Returns whether there may be more.
  bool advance();
  /// After the last advance.
  [[nodiscard]] PcapIndex take() noexcept { return std::move(index_); }

 private:
  /// Records of one step; their mean size is taken for that of the whole file, too.
  static constexpr std::size_t STEP = 16'384;

  template <bool SWAPPED>
  bool advance();
  bool zeros_begin(std::uint64_t at);
  template <typename Step>
  void for_each_array(Step&& step);

  pcap::Records records_;
  PcapIndex index_;
  /// Behind the last whole record.
  std::uint64_t at_{sizeof(pcap::FileHeader)};
  /// Offset of the first byte behind the last look at a row of zeros that is not zero.
  std::uint64_t zeros_seen_{0};
};

/// Copy `n` packets, which begin at `offsets` in `data`, to rows of `width` bytes at `out`; what is
/// left of a row becomes 0. No packet is longer than `width`.
void gather_rows(const std::uint8_t* data, const std::int64_t* offsets,
                 const std::uint32_t* lengths, std::size_t n, std::uint8_t* out,
                 std::size_t width) noexcept;

// --- pcapng

/// Writes the packets of a pcapng file to a classic one in nanoseconds, step by step: from the open
/// file `from`, from its beginning, to the open, empty file `to`. `name` is for errors. Throws
/// Error NOT_SUPPORTED without libpcap, INVALID_PARAMETER with libpcap's words.
///
/// The result is to be called until it returns false. Each call takes some milliseconds, and throws
/// Error INVALID_PARAMETER for a damaged file, with the place; GENERIC_FAILURE when `to` cannot be
/// written.
///
/// libpcap is loaded when the first such file is opened: programs that never do run without it.
std::function<bool()> pcapng_conversion(int from, int to, const std::string& name);

}  // namespace daqiri
