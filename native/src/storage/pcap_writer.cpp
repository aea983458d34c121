#include "storage/pcap_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "storage/pcap_index.h"
#include "system/log.h"

namespace daqiri {

namespace {

constexpr std::uint32_t NS_PER_SECOND = 1'000'000'000;
static_assert(sizeof(pcap::RecordHeader) <= RecordBatch::MAX_HEADER);

/// Files that this process left with nothing but whole records in them: appending burst after burst
/// must not walk through all records of the file every time.
class WholeFiles {
 public:
  void remember(int fd) noexcept {
    Mark mark;
    if (!mark.read(fd)) return;
    const std::lock_guard lock(mutex_);
    const auto same = std::find_if(marks_.begin(), marks_.end(), [&](const Mark& m) {
      return m.device == mark.device && m.inode == mark.inode && m.size >= 0;
    });
    *(same != marks_.end() ? same : &marks_[next_++ % marks_.size()]) = mark;
  }
  /// Whether nobody has changed it since.
  [[nodiscard]] bool knows(int fd) noexcept {
    Mark mark;
    if (!mark.read(fd)) return false;
    const std::lock_guard lock(mutex_);
    return std::find(marks_.begin(), marks_.end(), mark) != marks_.end();
  }

 private:
  struct Mark {
    std::uint64_t device{0};
    std::uint64_t inode{0};
    std::int64_t size{-1};
    std::int64_t changed_ns{0};
    bool operator==(const Mark&) const = default;
    bool read(int fd) noexcept {
      struct stat found{};
      if (fstat(fd, &found) != 0) return false;
      *this = {found.st_dev, found.st_ino, found.st_size,
               std::int64_t{found.st_mtim.tv_sec} * NS_PER_SECOND + found.st_mtim.tv_nsec};
      return true;
    }
  };
  std::mutex mutex_;
  std::array<Mark, 64> marks_{};
  std::size_t next_{0};
};

WholeFiles& whole_files() noexcept {
  static WholeFiles files;
  return files;
}

/// Returns errno.
int write_header(int fd, const PcapFormat& format) noexcept {
  pcap::FileHeader header;
  header.magic = format.nanosecond ? pcap::MAGIC_NANOSECOND : pcap::MAGIC_MICROSECOND;
  header.link_type = format.link_type;
  return write_fully(fd, &header, sizeof header, 0);
}

/// Whether the `size` - `end` bytes behind the last whole record can be the beginning of one more,
/// and of nothing else.
bool is_torn_record(int fd, std::uint64_t end, std::uint64_t size) noexcept {
  pcap::RecordHeader record;
  if (size - end < sizeof record) return true;
  return pread(fd, &record, sizeof record, static_cast<off_t>(end)) == sizeof record &&
         record != pcap::RecordHeader{} && record.captured <= pcap::SNAP_LENGTH;
}

}  // namespace

PcapWriter::PcapWriter(const PcapFormat& format, std::unique_ptr<FileOutput> output)
    : PacketWriter(std::move(output)),
      format_(format),
      ns_per_tick_(format.nanosecond ? 1 : 1000) {}

PcapWriter::~PcapWriter() { close(); }

void PcapWriter::prepare(const std::string& path) {
  const int problem = write_header(prepare_file(path).fd(), format_);
  if (problem == 0) return;
  discard_prepared();
  throw file_error("cannot write", path, problem);
}

void PcapWriter::open(const std::string& path, const PcapFormat& format, Existing existing,
                      std::uint32_t longest) {
  close();
  format_ = format;
  snap_length_ = pcap::SNAP_LENGTH;
  ns_per_tick_ = format.nanosecond ? 1 : 1000;
  if (existing == Existing::REFUSE) return create(path);
  constexpr int FLAGS = O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const auto opened = [&](int flags) {
    return File::private_to_process([&] { return ::open(path.c_str(), FLAGS | flags, 0644); });
  };
  File file = opened(O_CREAT | O_EXCL);
  const bool created = file.is_open();
  if (!created && errno != EEXIST) throw file_error("cannot create", path, errno);
  if (!created) file = opened(0);
  if (!file.is_open()) throw file_error("cannot open", path, errno);
  append(std::move(file), path, longest, created);
}

void PcapWriter::append(File file, const std::string& path, std::uint32_t longest, bool created) {
  lock_for_writing(file, path);
  struct stat found{};
  // What it holds is settled by the lock.
  if (fstat(file.fd(), &found) != 0) throw file_error("cannot examine", path, errno);
  // Whoever held the lock could not write it.
  if (found.st_nlink == 0)
    throw Error(Status::NOT_READY, path + " was removed while it was opened; try again");
  const auto size = static_cast<std::uint64_t>(found.st_size);
  if (size > 0) {
    const std::uint64_t end = require_compatible(file.fd(), path, size, longest);
    return begin(std::move(file), path, end, end);
  }
  const int problem = write_header(file.fd(), format_);
  if (problem != 0) {
    if (created) {
      remove_file(file, path);
    } else {
      [[maybe_unused]] const int cut = ftruncate(file.fd(), 0);
    }
    throw file_error("cannot write", path, problem);
  }
  begin(std::move(file), path, sizeof(pcap::FileHeader), 0);
}

std::uint64_t PcapWriter::require_compatible(int fd, const std::string& path, std::uint64_t size,
                                             std::uint32_t longest) {
  std::array<std::uint8_t, sizeof(pcap::FileHeader)> bytes{};
  ssize_t n = 0;
  do {
    n = pread(fd, bytes.data(), bytes.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0) throw file_error("cannot read", path, errno);
  const pcap::Format found = pcap::read_header(bytes.data(), static_cast<std::uint64_t>(n), path);
  if (found.swapped) refuse_existing(path, "has the byte order of another machine");
  if (found.nanosecond != format_.nanosecond) {
    refuse_existing(path, found.nanosecond ? "counts time in nanoseconds, not microseconds"
                                           : "counts time in microseconds, not nanoseconds");
  }
  if (found.link_type != format_.link_type) {
    refuse_existing(path, "has link type " + std::to_string(found.link_type) +
                              ", and these packets have " + std::to_string(format_.link_type));
  }
  // 0 means that nobody said.
  if (found.snap_length != 0) snap_length_ = std::min(found.snap_length, pcap::SNAP_LENGTH);
  if (std::min(longest, pcap::SNAP_LENGTH) > snap_length_) {
    refuse_existing(path, "has a snap length of " + std::to_string(snap_length_) +
                              " bytes, and there is a packet of " + std::to_string(longest));
  }
  if (whole_files().knows(fd)) return size;
  const std::uint64_t end = pcap::whole_records_end(fd, size, path);
  if (end == size) return size;
  const std::string torn = std::to_string(size - end) + " bytes";
  if (!is_torn_record(fd, end, size)) {
    refuse_existing(path, "is damaged: its last " + torn +
                              " are no packets ('daqiri-ophyd pcap repair --output OUT " + path +
                              "' keeps what is before them)");
  }
  if (ftruncate(fd, static_cast<off_t>(end)) != 0) throw file_error("cannot cut", path, errno);
  log(LogLevel::WARN,
      path + " ended in a torn record, as a killed writer leaves it; " + torn + " were cut off");
  return end;
}

int PcapWriter::end(bool /*durable*/) noexcept {
  if (!failed()) whole_files().remember(fd());
  return 0;
}

void PcapWriter::add(RecordBatch& batch, const Burst& burst, PacketPrefixes& prefixes,
                     std::uint32_t packet, std::uint64_t time) noexcept {
  std::byte* const record = batch.room();
  const std::uint32_t prefix =
      std::min(prefixes.write(packet, record + sizeof(pcap::RecordHeader)), snap_length_);
  std::uint32_t wire_length = prefix;
  std::uint32_t left = snap_length_ - prefix;
  batch.stage(static_cast<std::uint32_t>(sizeof(pcap::RecordHeader)) + prefix);
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
    const std::uint32_t length = burst.pkt_lens[s][packet];
    const std::uint32_t taken = std::min(length, left);
    wire_length += length;
    left -= taken;
    batch.put(burst.pkts[s][packet], taken);
  }
  const pcap::RecordHeader header{static_cast<std::uint32_t>(time / NS_PER_SECOND),
                                  static_cast<std::uint32_t>(time % NS_PER_SECOND) / ns_per_tick_,
                                  snap_length_ - left, wire_length};
  std::memcpy(record, &header, sizeof header);
  batch.end_record(wire_length, time, burst.flow_ids[packet]);
}

}  // namespace daqiri
