#include "storage/pcap_index.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

#include "daqiri/error.h"

namespace daqiri {

namespace {

/// Records of one step; their mean size is taken for that of the whole file, too.
constexpr std::size_t STEP = 16'384;

template <bool SWAPPED>
std::uint32_t order(std::uint32_t value) {
  return SWAPPED ? __builtin_bswap32(value) : value;
}

const std::uint8_t* first_nonzero(const std::uint8_t* begin, const std::uint8_t* end) noexcept {
  return std::find_if(begin, end, [](std::uint8_t byte) { return byte != 0; });
}

}  // namespace

// --- Where record headers are read from

namespace pcap {

std::uint64_t MemoryRecords::zeros_end(std::uint64_t at) const noexcept {
  return static_cast<std::uint64_t>(first_nonzero(data_ + at, data_ + size_) - data_);
}

bool FileRecords::pays(int fd) noexcept {
  struct statfs found{};
  return fstatfs(fd, &found) == 0 && found.f_type == TMPFS_MAGIC;
}

void FileRecords::fill(std::uint64_t at, std::size_t least, std::size_t most) {
  begin_ = end_ = at;
  while (end_ - begin_ < least) {
    const ssize_t n = pread(fd_, window_.get() + (end_ - begin_), most - (end_ - begin_),
                            static_cast<off_t>(end_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error("cannot read", name_, errno);
    if (n == 0) {
      struct stat now{};
      static_cast<void>(fstat(fd_, &now));
      throw Error(Status::GENERIC_FAILURE, name_ + " was cut from " + std::to_string(size_) +
                                               " to " + std::to_string(now.st_size) +
                                               " bytes while it was read; open it again");
    }
    end_ += static_cast<std::uint64_t>(n);
  }
}

RecordHeader FileRecords::read(std::uint64_t at, std::uint64_t step) {
  if (at < begin_ || at + sizeof(RecordHeader) > end_)
    fill(at, sizeof(RecordHeader), step < LONG_RECORD ? WINDOW : sizeof(RecordHeader));
  RecordHeader header;
  std::memcpy(&header, window_.get() + (at - begin_), sizeof header);
  return header;
}

std::uint64_t FileRecords::zeros_end(std::uint64_t at) {
  while (at < size_) {
    fill(at, 1, WINDOW);
    const std::uint8_t* end = window_.get() + (end_ - begin_);
    const std::uint8_t* found = first_nonzero(window_.get(), end);
    if (found != end) return at + static_cast<std::uint64_t>(found - window_.get());
    at = end_;
  }
  return size_;
}

std::uint64_t whole_records_end(int fd, std::uint64_t size, const std::string& name) {
  FileRecords records(fd, size, name);
  std::uint64_t at = sizeof(FileHeader);
  std::uint64_t step = 0;
  while (size - at >= sizeof(RecordHeader)) {
    const RecordHeader record = records.read(at, step);
    step = sizeof record + record.captured;
    // Zeros are what a crash leaves where data had not reached the disk.
    if (record == RecordHeader{} || record.captured > MAX_RECORD || step > size - at) break;
    at += step;
  }
  return at;
}

}  // namespace pcap

// --- The index

PcapIndexer::PcapIndexer(const std::uint8_t* data, std::uint64_t size, std::string name)
    : PcapIndexer(Source(pcap::MemoryRecords(data, size)), data, size, std::move(name)) {}

PcapIndexer::PcapIndexer(const MappedFile& file)
    : PcapIndexer(pcap::FileRecords::pays(file.fd())
                      ? Source(pcap::FileRecords(file.fd(), file.size(), file.name()))
                      : Source(pcap::MemoryRecords(file.data(), file.size())),
                  file.data(), file.size(), file.name()) {}

PcapIndexer::PcapIndexer(Source source, const std::uint8_t* data, std::uint64_t size,
                         std::string name)
    : name_(std::move(name)), source_(std::move(source)) {
  const pcap::Format format = pcap::read_header(data, size, name_);
  index_.link_type = format.link_type;
  index_.snap_length = format.snap_length;
  index_.nanosecond = format.nanosecond;
  index_.swapped = format.swapped;
}

void PcapIndexer::reserve(std::size_t records) {
  index_.offsets.reserve(records);
  index_.lengths.reserve(records);
  index_.wire_lengths.reserve(records);
  index_.timestamps.reserve(records);
}

/// Records of zeros are told from a tail of zeros, which a crash leaves where data had not reached
/// the disk.
template <typename Records>
bool PcapIndexer::zeros_begin(Records& source) {
  // Looked at once, so that a file full of zeros costs no more than any other.
  if (at_ < zeros_seen_) return false;
  zeros_seen_ = source.zeros_end(at_);
  return zeros_seen_ == source.size();
}

template <bool SWAPPED, typename Records>
bool PcapIndexer::advance(Records& source) {
  const std::uint64_t size = source.size();
  const std::int64_t ns_per_tick = index_.nanosecond ? 1 : 1000;
  const std::size_t before = index_.offsets.size();
  if (before == STEP) reserve(STEP + (size - at_) / (at_ / STEP));
  reserve(before + STEP);
  std::uint64_t* const offsets = index_.offsets.data();
  std::uint32_t* const lengths = index_.lengths.data();
  std::uint32_t* const wire_lengths = index_.wire_lengths.data();
  std::int64_t* const timestamps = index_.timestamps.data();
  std::size_t n = before;
  std::uint64_t at = at_;
  std::uint64_t step = 0;
  bool more = false;
  while (size - at >= sizeof(pcap::RecordHeader)) {
    if (n == before + STEP) {
      more = true;
      break;
    }
    const pcap::RecordHeader record = source.read(at, step);
    const std::uint32_t captured = order<SWAPPED>(record.captured);
    step = sizeof record + captured;
    if (captured > pcap::MAX_RECORD) {
      index_.damage = "the record at byte " + std::to_string(at) + " claims " +
                      std::to_string(captured) + " bytes, and more than " +
                      std::to_string(pcap::MAX_RECORD) + " is taken for garbage";
      break;
    }
    if (step > size - at) break;
    at_ = at;
    if (record == pcap::RecordHeader{} && zeros_begin(source)) break;
    offsets[n] = at + sizeof record;
    lengths[n] = captured;
    wire_lengths[n] = order<SWAPPED>(record.original);
    timestamps[n] = std::int64_t{order<SWAPPED>(record.seconds)} * 1'000'000'000 +
                    std::int64_t{order<SWAPPED>(record.fraction)} * ns_per_tick;
    ++n;
    at += step;
  }
  // Zeros before a torn record are the crash's as well: once it is cut off, they end the file.
  while (!more && n > 0 && lengths[n - 1] == 0 && wire_lengths[n - 1] == 0 &&
         timestamps[n - 1] == 0) {
    --n;
    at -= sizeof(pcap::RecordHeader);
  }
  at_ = at;
  index_.torn_bytes = size - at;
  index_.offsets.set_size(n);
  index_.lengths.set_size(n);
  index_.wire_lengths.set_size(n);
  index_.timestamps.set_size(n);
  return more;
}

bool PcapIndexer::advance() {
  return std::visit(
      [this](auto& source) {
        return index_.swapped ? advance<true>(source) : advance<false>(source);
      },
      source_);
}

PcapIndex index_pcap(const std::uint8_t* data, std::uint64_t size, const std::string& name) {
  PcapIndexer indexer(data, size, name);
  while (indexer.advance()) {
  }
  PcapIndex index = indexer.take();
  if (!index.damage.empty()) {
    throw Error(Status::INVALID_PARAMETER, name + ": " + index.damage + "; " +
                                               std::to_string(index.offsets.size()) +
                                               " packets before it are whole");
  }
  return index;
}

void gather_rows(const std::uint8_t* data, const std::int64_t* offsets,
                 const std::uint32_t* lengths, std::size_t n, std::uint8_t* out,
                 std::size_t width) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint8_t* row = out + i * width;
    std::memcpy(row, data + offsets[i], lengths[i]);
    if (lengths[i] < width) std::memset(row + lengths[i], 0, width - lengths[i]);
  }
}

}  // namespace daqiri
