#include "storage/pcap_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "storage/pcap_format.h"
#include "storage/record_chain.h"
#include "storage/whole_files.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr std::size_t MAX_IOVECS = 1024;  // IOV_MAX of Linux
constexpr std::size_t MAX_RECORDS = 2048;
constexpr std::size_t STAGING = std::size_t{96} * 1024;
/// Shorter segments are copied behind their record header: an iovec of its own costs the kernel
/// more.
constexpr std::uint32_t COPY_BELOW = 512;
constexpr std::size_t WORST_STAGING =
    sizeof(pcap::RecordHeader) + MAX_LINK_PREFIX + std::size_t{MAX_NUM_SEGS} * COPY_BELOW;
/// A stretch of the staging area and a segment, for each segment.
constexpr std::size_t WORST_IOVECS = 2 * MAX_NUM_SEGS + 1;

constexpr std::uint32_t NS_PER_SECOND = 1'000'000'000;

[[noreturn]] void incompatible(const std::string& path, const std::string& what) {
  throw Error(Status::INVALID_PARAMETER,
              path + " exists and " + what + "; choose another prefix or move the file away");
}

}  // namespace

/// Records on their way to the file.
struct PcapWriter::Batch {
  struct Mark {
    /// Bytes of the batch up to the record's end.
    std::uint32_t end;
    std::uint32_t wire_length;
    std::uint64_t time;
  };
  std::array<iovec, MAX_IOVECS> iovecs;
  std::array<Mark, MAX_RECORDS> marks;
  std::array<std::byte, STAGING> staging;
  std::size_t num_iovecs{0};
  std::size_t num_records{0};
  std::size_t staged{0};
  /// Where the stretch of staging that has no iovec yet begins.
  std::size_t stretch{0};
  std::uint32_t bytes{0};

  [[nodiscard]] bool has_room() const noexcept {
    return num_records < MAX_RECORDS && num_iovecs + WORST_IOVECS <= MAX_IOVECS &&
           staged + WORST_STAGING <= STAGING;
  }
  void end_stretch() noexcept {
    if (staged == stretch) return;
    iovecs[num_iovecs++] = {staging.data() + stretch, staged - stretch};
    stretch = staged;
  }
  void clear() noexcept {
    num_iovecs = num_records = staged = stretch = 0;
    bytes = 0;
  }
};

PcapWriter::PcapWriter(TailGuard* guard)
    : guard_(guard), batch_(std::make_unique_for_overwrite<Batch>()) {}

PcapWriter::~PcapWriter() { close(); }

void PcapWriter::open(const std::string& path, const PcapFormat& format, Existing existing,
                      std::uint32_t longest) {
  close();
  path_ = path;
  failed_ = false;
  tally_ = {};
  constexpr int FLAGS = O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  File file(::open(path.c_str(), FLAGS | O_CREAT | O_EXCL, 0644));
  const bool created = file.is_open();
  if (!created) {
    if (errno != EEXIST) throw file_error("cannot create", path, errno);
    if (existing == Existing::REFUSE) incompatible(path, "is not overwritten");
    file = File(::open(path.c_str(), FLAGS));
    if (!file.is_open()) throw file_error("cannot open", path, errno);
  }
  struct stat found{};
  if (fstat(file.fd(), &found) != 0) throw file_error("cannot look at", path, errno);
  if (!S_ISREG(found.st_mode)) incompatible(path, "is not a regular file");
  // Where the file system has no locks, we go without.
  if (flock(file.fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(Status::NOT_READY,
                path + " is being written by somebody else; wait until that is done");
  }
  file_ = std::move(file);
  try {
    begin(format, longest);
  } catch (...) {
    if (created) unlink(path.c_str());
    file_.close();
    throw;
  }
  if (guard_ != nullptr) guard_->watch(file_.fd(), path, size_);
}

void PcapWriter::begin(const PcapFormat& format, std::uint32_t longest) {
  ticks_per_second_ = format.nanosecond ? NS_PER_SECOND : NS_PER_SECOND / 1000;
  ns_per_tick_ = NS_PER_SECOND / ticks_per_second_;
  struct stat found{};
  // Once more: what it holds is settled by the lock.
  if (fstat(file_.fd(), &found) != 0) throw file_error("cannot look at", path_, errno);
  size_ = size_before_ = static_cast<std::uint64_t>(found.st_size);
  snap_length_ = pcap::SNAP_LENGTH;
  if (size_ > 0) return require_compatible(format, longest);

  pcap::FileHeader header;
  header.magic = format.nanosecond ? pcap::MAGIC_NANOSECOND : pcap::MAGIC_MICROSECOND;
  header.link_type = format.link_type;
  const int problem = write_fully(file_.fd(), &header, sizeof header, 0);
  if (problem != 0) {
    [[maybe_unused]] const int cut = ftruncate(file_.fd(), 0);
    throw file_error("cannot write", path_, problem);
  }
  size_ = sizeof header;
}

void PcapWriter::require_compatible(const PcapFormat& format, std::uint32_t longest) {
  std::array<std::uint8_t, sizeof(pcap::FileHeader)> bytes{};
  ssize_t n = 0;
  do {
    n = pread(file_.fd(), bytes.data(), bytes.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0) throw file_error("cannot read", path_, errno);
  const pcap::Format found = pcap::read_header(bytes.data(), static_cast<std::uint64_t>(n), path_);
  if (found.swapped) incompatible(path_, "has the byte order of another machine");
  if (found.nanosecond != format.nanosecond) {
    incompatible(path_, found.nanosecond ? "counts time in nanoseconds, not microseconds"
                                         : "counts time in microseconds, not nanoseconds");
  }
  if (found.link_type != format.link_type) {
    incompatible(path_, "has link type " + std::to_string(found.link_type) +
                            ", and these packets have " + std::to_string(format.link_type));
  }
  // 0 means that nobody said.
  if (found.snap_length != 0) snap_length_ = std::min(found.snap_length, pcap::SNAP_LENGTH);
  if (std::min(longest, pcap::SNAP_LENGTH) > snap_length_) {
    incompatible(path_, "has a snap length of " + std::to_string(snap_length_) +
                            " bytes, and there is a packet of " + std::to_string(longest));
  }
  if (whole_files().knows(file_.fd())) return;
  int problem = 0;
  const std::uint64_t end = pcap::whole_records_end(file_.fd(), size_, problem);
  if (problem != 0) throw file_error("cannot read", path_, problem);
  if (end != size_) {
    incompatible(path_, "ends in a torn record (" + std::to_string(size_ - end) +
                            " bytes behind the last whole one; 'truncate -s " +
                            std::to_string(end) + " " + path_ + "' removes them)");
  }
}

std::uint32_t PcapWriter::write(const Burst& burst, const LinkLayer& link, std::uint32_t first,
                                std::uint32_t count, std::uint64_t size_limit) noexcept {
  if (!is_open() || failed_) return 0;
  const LinkLayer* headers = link.reconstructs_headers() ? &link : nullptr;
  std::uint64_t now = 0;
  std::uint32_t written = 0;
  batch_->clear();
  for (std::uint32_t i = first; i < first + count && size_ + batch_->bytes < size_limit; ++i) {
    if (!batch_->has_room()) {
      written += flush();
      if (failed_) return written;
    }
    std::uint64_t time = burst.timestamps[i];
    if (time == 0) time = now != 0 ? now : (now = realtime_ns());
    add(burst, headers, i, time);
  }
  return written + flush();
}

void PcapWriter::add(const Burst& burst, const LinkLayer* link, std::uint32_t packet,
                     std::uint64_t time) noexcept {
  Batch& batch = *batch_;
  std::byte* const record = batch.staging.data() + batch.staged;
  const std::uint32_t prefix =
      link == nullptr ? 0
                      : std::min(link->prefix(burst, packet, record + sizeof(pcap::RecordHeader)),
                                 snap_length_);
  std::uint32_t wire_length = prefix;
  std::uint32_t left = snap_length_ - prefix;
  batch.staged += sizeof(pcap::RecordHeader) + prefix;
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
    const std::uint32_t length = burst.pkt_lens[s][packet];
    const std::uint32_t taken = std::min(length, left);
    wire_length += length;
    left -= taken;
    if (taken == 0) continue;
    if (taken < COPY_BELOW) {
      std::memcpy(batch.staging.data() + batch.staged, burst.pkts[s][packet], taken);
      batch.staged += taken;
    } else {
      batch.end_stretch();
      batch.iovecs[batch.num_iovecs++] = {burst.pkts[s][packet], taken};
    }
  }
  const std::uint32_t captured = snap_length_ - left;
  const pcap::RecordHeader header{static_cast<std::uint32_t>(time / NS_PER_SECOND),
                                  static_cast<std::uint32_t>(time % NS_PER_SECOND) / ns_per_tick_,
                                  captured, wire_length};
  std::memcpy(record, &header, sizeof header);
  batch.bytes += static_cast<std::uint32_t>(sizeof header) + captured;
  batch.marks[batch.num_records++] = {batch.bytes, wire_length, time};
}

std::uint32_t PcapWriter::flush() noexcept {
  Batch& batch = *batch_;
  batch.end_stretch();
  iovec* next = batch.iovecs.data();
  std::size_t left = batch.num_iovecs;
  std::uint64_t written = 0;
  int problem = 0;
  while (written < batch.bytes) {
    const ssize_t n =
        pwritev(file_.fd(), next, static_cast<int>(left), static_cast<off_t>(size_ + written));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      problem = n < 0 ? errno : EIO;
      break;
    }
    written += static_cast<std::uint64_t>(n);
    auto taken = static_cast<std::size_t>(n);
    while (left > 0 && taken >= next->iov_len) {
      taken -= next->iov_len;
      ++next;
      --left;
    }
    if (left > 0) {
      next->iov_base = static_cast<std::byte*>(next->iov_base) + taken;
      next->iov_len -= taken;
    }
  }
  std::uint32_t whole = 0;
  std::uint32_t end = 0;
  for (; whole < batch.num_records && batch.marks[whole].end <= written; ++whole) {
    const Batch::Mark& mark = batch.marks[whole];
    end = mark.end;
    tally_.wire_bytes += mark.wire_length;
    tally_.last_ns = static_cast<std::int64_t>(mark.time);
    if (tally_.first_ns < 0) tally_.first_ns = tally_.last_ns;
  }
  tally_.packets += whole;
  size_ += end;
  if (problem != 0) {
    fail("cannot write", problem);
    cut_errno_ = ftruncate(file_.fd(), static_cast<off_t>(size_)) == 0 ? 0 : errno;
  }
  if (guard_ != nullptr) guard_->commit(size_);
  batch.clear();
  return whole;
}

bool PcapWriter::still_there() const noexcept {
  if (!is_open()) return access(path_.c_str(), F_OK) == 0;
  struct stat found{};
  return fstat(file_.fd(), &found) != 0 || found.st_nlink > 0;
}

void PcapWriter::fail(const char* action, int error_number) noexcept {
  if (failed_) return;
  failed_ = true;
  failed_action_ = action;
  failed_errno_ = error_number;
  cut_errno_ = 0;
}

std::string PcapWriter::error() const {
  if (!failed_) return {};
  std::string text = file_problem(failed_action_, path_, failed_errno_);
  if (cut_errno_ != 0) {
    text += file_problem("; then its torn end could not be cut off:", path_, cut_errno_) +
            "; do it with 'truncate -s " + std::to_string(size_) + " " + path_ + "'";
  }
  return text;
}

void PcapWriter::close() noexcept {
  if (!file_.is_open()) return;
  if (!failed_ || cut_errno_ == 0) whole_files().remember(file_.fd());
  if (guard_ != nullptr) guard_->forget();
  // By hand: a child that was forked meanwhile shares the lock.
  flock(file_.fd(), LOCK_UN);
  const int problem = file_.close();
  if (problem != 0) fail("cannot close", problem);
}

}  // namespace daqiri
