#include "storage/pcap_index.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "daqiri/error.h"

namespace daqiri {

namespace pcap {

// --- Headers

namespace {

constexpr std::uint32_t swap(std::uint32_t value) { return __builtin_bswap32(value); }

/// Describes a file that begins with `magic` and is not a supported classic pcap file.
std::string relative(std::uint32_t magic) {
  static constexpr std::pair<std::uint32_t, const char*> KNOWN[] = {
      {0x0A0D0D0AU, "a pcapng file"},
      {0xA1B2CD34U, "a modified pcap file (longer record headers)"},
      {0x1C0001ABU, "an IXIA pcap file"},
      {0x1C0001ACU, "an IXIA pcap file"},
      {0xA12B3C4DU, "a Navtel pcap file"},
  };
  for (const auto& [known, name] : KNOWN) {
    if (magic == known || magic == swap(known))
      return std::string("this is ") + name + "; convert it with: editcap -F pcap IN OUT";
  }
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(),
                "not a pcap file: it begins with 0x%08x, accepted are 0x%08x (microseconds) and "
                "0x%08x (nanoseconds) in either byte order",
                magic, MAGIC_MICROSECOND, MAGIC_NANOSECOND);
  return text.data();
}

}  // namespace

FileHeader header_of(const Format& format) noexcept {
  return {.magic = format.nanosecond ? MAGIC_NANOSECOND : MAGIC_MICROSECOND,
          .snap_length = format.snap_length,
          .link_type = format.link_type};
}

Format read_header(const std::uint8_t* data, std::uint64_t size, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    throw Error(Status::INVALID_PARAMETER, name + ": " + what);
  };
  FileHeader header;
  if (size < sizeof header)
    refuse("not a pcap file: " + std::to_string(size) + " bytes, and its header alone has 24");
  std::memcpy(&header, data, sizeof header);
  Format format;
  format.swapped =
      header.magic == swap(MAGIC_MICROSECOND) || header.magic == swap(MAGIC_NANOSECOND);
  if (format.swapped) {
    header.magic = swap(header.magic);
    header.version_major = __builtin_bswap16(header.version_major);
    header.version_minor = __builtin_bswap16(header.version_minor);
    header.snap_length = swap(header.snap_length);
    header.link_type = swap(header.link_type);
  }
  format.nanosecond = header.magic == MAGIC_NANOSECOND;
  if (!format.nanosecond && header.magic != MAGIC_MICROSECOND) refuse(relative(header.magic));
  if (header.version_major != 2 || header.version_minor != 4) {
    refuse("pcap version " + std::to_string(header.version_major) + "." +
           std::to_string(header.version_minor) +
           ", only 2.4 is read; convert it with: editcap -F pcap IN OUT");
  }
  format.snap_length = header.snap_length;
  // The upper bits contain the length of the frame check sequence.
  format.link_type = header.link_type & 0x03FF'FFFFU;
  return format;
}

// --- Records

bool Records::pays(int fd) noexcept {
  struct statfs found{};
  return fstatfs(fd, &found) == 0 && found.f_type == TMPFS_MAGIC;
}

void Records::fill(std::uint64_t at, std::size_t least, std::size_t most) {
  begin_ = end_ = at;
  while (end_ - begin_ < least) {
    const ssize_t n = pread(fd_, buffer_.get() + (end_ - begin_), most - (end_ - begin_),
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

std::uint64_t Records::zeros_end(std::uint64_t at) {
  for (; at < size_; at = end_) {
    if (at < begin_ || at >= end_) fill(at, 1, WINDOW);
    const std::uint8_t* const end = window_ + (end_ - begin_);
    const std::uint8_t* const found =
        std::find_if(window_ + (at - begin_), end, [](std::uint8_t byte) { return byte != 0; });
    if (found != end) return begin_ + static_cast<std::uint64_t>(found - window_);
  }
  return size_;
}

std::uint64_t whole_records_end(int fd, std::uint64_t size, const std::string& name) {
  // A crash leaves zeros where data had not reached the disk.
  return Records(fd, size, name)
      .walk<false>(sizeof(FileHeader), [](std::uint64_t /*at*/, const RecordHeader& record) {
        return record != RecordHeader{};
      });
}

}  // namespace pcap

// --- The index

PcapIndexer::PcapIndexer(const std::uint8_t* data, std::uint64_t size, const std::string& name)
    : records_(data, size) {
  static_cast<pcap::Format&>(index_) = pcap::read_header(data, size, name);
}

PcapIndexer::PcapIndexer(const MappedFile& file)
    : PcapIndexer(file.data(), file.size(), file.name()) {
  if (pcap::Records::pays(file.fd())) records_ = pcap::Records(file.fd(), file.size(), file.name());
}

template <typename Step>
void PcapIndexer::for_each_array(Step&& step) {
  step(index_.offsets);
  step(index_.lengths);
  step(index_.wire_lengths);
  step(index_.timestamps);
}

/// Distinguishes records of zeros from a tail of zeros, which a crash leaves where data had not
/// reached the disk.
bool PcapIndexer::zeros_begin(std::uint64_t at) {
  // Each range of zeros is scanned once, so that a file full of zeros is not slower than others.
  if (at < zeros_seen_) return false;
  zeros_seen_ = records_.zeros_end(at);
  return zeros_seen_ == records_.size();
}

template <bool SWAPPED>
bool PcapIndexer::advance() {
  const std::uint64_t size = records_.size();
  const std::int64_t ns_per_tick = index_.nanosecond ? 1 : 1000;
  const std::size_t before = index_.offsets.size();
  const std::size_t expected = before == STEP ? STEP + (size - at_) / (at_ / STEP) : 0;
  for_each_array([&](auto& array) { array.reserve(std::max(before + STEP, expected)); });
  std::uint64_t* const offsets = index_.offsets.data();
  std::uint32_t* const lengths = index_.lengths.data();
  std::uint32_t* const wire_lengths = index_.wire_lengths.data();
  std::int64_t* const timestamps = index_.timestamps.data();
  std::size_t n = before;
  at_ = records_.walk<SWAPPED>(at_, [&](std::uint64_t at, const pcap::RecordHeader& record) {
    if (n == before + STEP || (record == pcap::RecordHeader{} && zeros_begin(at))) return false;
    offsets[n] = at + sizeof record;
    lengths[n] = record.captured;
    wire_lengths[n] = record.original;
    timestamps[n] =
        std::int64_t{record.seconds} * 1'000'000'000 + std::int64_t{record.fraction} * ns_per_tick;
    ++n;
    return true;
  });
  const bool more = n == before + STEP;
  if (!more && size - at_ >= sizeof(pcap::RecordHeader)) {
    const pcap::RecordHeader record = records_.read(at_, 0);
    const std::uint32_t captured = SWAPPED ? record.swapped().captured : record.captured;
    if (captured > pcap::MAX_RECORD) {
      index_.damage = "the record at byte " + std::to_string(at_) + " claims " +
                      std::to_string(captured) + " bytes, and more than " +
                      std::to_string(pcap::MAX_RECORD) + " is considered garbage";
    }
  }
  // Zeros before a torn record also come from the crash: without the torn record, they end the
  // file.
  while (!more && n > 0 && lengths[n - 1] == 0 && wire_lengths[n - 1] == 0 &&
         timestamps[n - 1] == 0) {
    --n;
    at_ -= sizeof(pcap::RecordHeader);
  }
  index_.torn_bytes = size - at_;
  for_each_array([n](auto& array) { array.set_size(n); });
  return more;
}

bool PcapIndexer::advance() { return index_.swapped ? advance<true>() : advance<false>(); }

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
