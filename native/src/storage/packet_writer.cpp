#include "storage/packet_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "system/log.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr std::uint32_t NS_PER_SECOND = 1'000'000'000;
static_assert(sizeof(pcap::RecordHeader) <= RecordBatch::MAX_HEADER);

/// Files that this process left with whole records only. Without this list, every appended burst
/// would require reading all records of the file.
class WholeFiles {
 public:
  void remember(int fd) noexcept {
    struct stat now{};
    if (fstat(fd, &now) != 0) return;
    const std::lock_guard lock(mutex_);
    auto* const same = find(now);
    *(same != files_.end() ? same : &files_[next_++ % files_.size()]) = now;
  }
  /// Whether the file is unchanged since then.
  [[nodiscard]] bool knows(int fd) noexcept {
    struct stat now{};
    if (fstat(fd, &now) != 0) return false;
    const std::lock_guard lock(mutex_);
    const auto* const left = find(now);
    return left != files_.end() && left->st_size == now.st_size &&
           left->st_mtim.tv_sec == now.st_mtim.tv_sec &&
           left->st_mtim.tv_nsec == now.st_mtim.tv_nsec;
  }

 private:
  struct stat* find(const struct stat& file) noexcept {
    return std::find_if(files_.begin(), files_.end(), [&](const struct stat& known) {
      return known.st_dev == file.st_dev && known.st_ino == file.st_ino;
    });
  }
  std::mutex mutex_;
  std::array<struct stat, 64> files_{};
  std::size_t next_{0};
};

WholeFiles& whole_files() noexcept {
  static WholeFiles files;
  return files;
}

/// Returns errno.
int write_header(int fd, const pcap::Format& format) noexcept {
  const pcap::FileHeader header = pcap::header_of(format);
  return write_fully(fd, &header, sizeof header, 0);
}

/// Whether the `size` - `end` bytes after the last whole record can be the beginning of one more
/// record.
bool is_torn_record(int fd, std::uint64_t end, std::uint64_t size) noexcept {
  pcap::RecordHeader record;
  if (size - end < sizeof record) return true;
  return pread(fd, &record, sizeof record, static_cast<off_t>(end)) == sizeof record &&
         record != pcap::RecordHeader{} && record.captured <= pcap::SNAP_LENGTH;
}

}  // namespace

// --- Beginning a file

PacketWriter::PacketWriter(const pcap::Format& format, std::unique_ptr<FileOutput> output)
    : format_(format),
      output_(std::move(output)),
      batch_(std::make_unique_for_overwrite<RecordBatch>()) {}

PacketWriter::PacketWriter(const RawFormat& format, std::unique_ptr<FileOutput> output)
    : PacketWriter(pcap::Format{}, std::move(output)) {
  skip_ = format.packet_data_offset;
  snap_length_ = std::numeric_limits<std::uint32_t>::max();
  index_.emplace();
}

void PacketWriter::prepare(const std::string& path) {
  discard_prepared();
  next_ = std::make_unique<NewFile>(path);
  if (index_) next_index_ = std::make_unique<NewFile>(RawIndex::path_of(path));
  const NewFile& with_header = index_ ? *next_index_ : *next_;
  const int problem = index_ ? RawIndex::write_header(with_header.fd(), 0)
                             : write_header(with_header.fd(), format_);
  if (problem == 0) return;
  discard_prepared();
  throw file_error("cannot write", index_ ? RawIndex::path_of(path) : path, problem);
}

void PacketWriter::discard_prepared() noexcept {
  next_index_.reset();
  next_.reset();
}

void PacketWriter::create(const std::string& path) {
  close();
  try {
    if (next_ == nullptr || next_->path() != path) prepare(path);
    if (index_) next_index_->appear();
    next_->appear();
    if (index_) index_->begin(next_index_->take());
    begin(next_->take(), path, header_size(), 0);
  } catch (...) {
    discard_prepared();
    throw;
  }
  discard_prepared();
}

void PacketWriter::append(const std::string& path, std::uint32_t longest) {
  close();
  snap_length_ = pcap::SNAP_LENGTH;
  constexpr int FLAGS = O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const auto opened = [&](int flags) {
    return File::private_to_process([&] { return open(path.c_str(), FLAGS | flags, 0666); });
  };
  File file = opened(O_CREAT | O_EXCL);
  const bool created = file.is_open();
  if (!created && errno != EEXIST) throw file_error("cannot create", path, errno);
  if (!created) file = opened(0);
  if (!file.is_open()) throw file_error("cannot open", path, errno);
  // Only the size under the lock is final.
  const struct stat found = lock_for_writing(file, path);
  // The previous owner of the lock removed it, because writing had failed.
  if (found.st_nlink == 0)
    throw Error(Status::NOT_READY, path + " was removed while it was opened; try again");
  if (const auto size = static_cast<std::uint64_t>(found.st_size); size > 0) {
    const std::uint64_t end = require_compatible(file.fd(), path, size, longest);
    return begin(std::move(file), path, end, end);
  }
  if (const int problem = write_header(file.fd(), format_); problem != 0) {
    if (created) {
      remove_file(identity_of(file), path);
    } else {
      [[maybe_unused]] const int cut = ftruncate(file.fd(), 0);
    }
    throw file_error("cannot write", path, problem);
  }
  begin(std::move(file), path, header_size(), 0);
}

std::uint64_t PacketWriter::require_compatible(int fd, const std::string& path, std::uint64_t size,
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
  // 0 means unspecified.
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
                              " are not packets ('daqiri-ophyd pcap repair --output OUT " + path +
                              "' keeps the packets before them)");
  }
  if (ftruncate(fd, static_cast<off_t>(end)) != 0) throw file_error("cannot cut", path, errno);
  log(LogLevel::WARN,
      path + " ended in a torn record, as a killed writer leaves it; " + torn + " were cut off");
  return end;
}

void PacketWriter::begin(File file, const std::string& path, std::uint64_t size,
                         std::uint64_t before) {
  path_ = path;
  errno_ = 0;
  gone_ = false;
  size_before_ = before;
  tally_ = {.size = size};
  batch_->begin(tally_);
  file_ = std::move(file);
  own_ = identity_of(file_);
  const int problem = output_->begin(file_.fd(), path_, tally_);
  if (problem == 0) return;
  if (before == 0) remove();
  file_.close();
  throw file_error("cannot write", path_, problem);
}

// --- Writing it

std::uint32_t PacketWriter::write(const Burst& burst, const LinkLayer& link, std::uint32_t first,
                                  std::uint32_t count, std::uint64_t size_limit) noexcept {
  if (!file_.is_open() || failed()) return 0;
  const std::uint64_t before = tally_.packets;
  std::uint64_t now = 0;
  PacketPrefixes prefixes(link, burst);
  for (std::uint32_t i = first; i < first + count && tally_.size < size_limit; ++i) {
    if (!batch_->has_room()) put_batch();
    if (failed()) break;
    std::uint64_t time = burst.timestamps[i];
    if (time == 0) time = now != 0 ? now : (now = realtime_ns());
    add(burst, prefixes, i, time);
  }
  const bool holds = !failed() && batch_->all_copied() && !batch_->records().empty();
  if (!holds) put_batch();
  held_back_ = holds;
  return tally_.packets > before ? static_cast<std::uint32_t>(tally_.packets - before) : 0;
}

void PacketWriter::fetch(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept {
  if (burst.on_device == 0) return;
  unread_.clear();
  try {
    burst.copy_to_host(memory::DeviceCopies::Behind::COPIES, first, count);
  } catch (const Error& error) {
    unread_ = error.what();
  } catch (const std::exception&) {
    unread_ = "no memory";
  }
}

std::uint32_t PacketWriter::write(const Burst& burst, std::uint32_t first, std::uint32_t count,
                                  std::uint64_t size_limit) noexcept {
  if (burst.on_device == 0 || unread_.empty())
    return write(burst, *link_, first, count, size_limit);
  put_batch();
  if (!failed()) cut(EIO);
  return 0;
}

void PacketWriter::add(const Burst& burst, PacketPrefixes& prefixes, std::uint32_t packet,
                       std::uint64_t time) noexcept {
  RecordBatch& batch = *batch_;
  std::byte* const record = batch.room();
  std::uint32_t prefix = 0;
  if (!index_) {
    prefix = std::min(prefixes.write(packet, record + sizeof(pcap::RecordHeader)), snap_length_);
    batch.stage(static_cast<std::uint32_t>(sizeof(pcap::RecordHeader)) + prefix);
  }
  std::uint32_t wire_length = prefix;
  std::uint32_t left = snap_length_ - prefix;
  std::uint64_t skip = skip_;
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
    const std::uint32_t length = burst.pkt_lens[s][packet];
    const auto skipped = static_cast<std::uint32_t>(std::min<std::uint64_t>(skip, length));
    const std::uint32_t taken = std::min(length - skipped, left);
    wire_length += length;
    skip -= skipped;
    left -= taken;
    batch.put(burst.on_host(s, packet) + skipped, taken);
  }
  if (!index_) {
    const std::uint32_t ns = time % NS_PER_SECOND;
    const pcap::RecordHeader header{static_cast<std::uint32_t>(time / NS_PER_SECOND),
                                    format_.nanosecond ? ns : ns / 1000, snap_length_ - left,
                                    wire_length};
    std::memcpy(record, &header, sizeof header);
  }
  batch.end_record(wire_length, time, burst.flow_ids[packet]);
  tally_.add(batch.before().size + batch.bytes(), wire_length, time);
}

void PacketWriter::put_batch() noexcept {
  RecordBatch& batch = *batch_;
  if (failed() || batch.records().empty()) return;
  if (std::exchange(held_back_, false) && !still_there()) {
    // Written beyond its end, a file that was cut would get a hole.
    gone_ = true;
    tally_ = output_->whole();
  } else {
    int problem = index_ ? index_->add(batch) : 0;
    if (problem == 0) problem = output_->put(batch);
    if (problem == 0) problem = count_rows();
    if (problem != 0) cut(problem);
  }
  batch.begin(tally_);
}

int PacketWriter::count_rows() noexcept {
  return index_ ? index_->count(output_->whole().packets) : 0;
}

void PacketWriter::sync() noexcept {
  if (!file_.is_open()) return;
  put_batch();
  if (failed()) return;
  int problem = output_->sync();
  if (problem == 0) problem = count_rows();
  if (problem != 0) cut(problem);
}

bool PacketWriter::retry() noexcept {
  if (!file_.is_open() || gone_ || cut_errno_ != 0 ||
      output_->begin(file_.fd(), path_, tally_) != 0)
    return false;
  batch_->begin(tally_);
  errno_ = 0;
  return true;
}

void PacketWriter::fail(int error_number, const char* action) noexcept {
  if (error_number == 0 || failed()) return;
  errno_ = error_number;
  failed_action_ = action;
  cut_errno_ = 0;
}

void PacketWriter::cut(int error_number) noexcept {
  fail(error_number);
  output_->sync();
  tally_ = output_->whole();
  if (ftruncate(file_.fd(), static_cast<off_t>(tally_.size)) != 0) cut_errno_ = errno;
  count_rows();
}

std::string PacketWriter::error() const {
  if (!failed()) return {};
  if (gone_) return gone_error(path_);
  if (!unread_.empty()) return "cannot write " + path_ + ": " + unread_;
  std::string text = file_problem(failed_action_, path_, errno_);
  if (cut_errno_ != 0) {
    text += file_problem("; then its torn end could not be cut off:", path_, cut_errno_) +
            "; do it with 'truncate -s " + std::to_string(tally_.size) + " " + path_ + "'";
  }
  return text;
}

bool PacketWriter::still_there() const noexcept {
  if (gone_) return false;
  if (!file_.is_open()) return access(path_.c_str(), F_OK) == 0;
  return file_has(file_, std::min(tally_.size, output_->whole().size));
}

// --- Ending it

void PacketWriter::close(bool durable) noexcept {
  if (!file_.is_open()) return;
  sync();
  // A write that is still in flight would go to the next file that gets this descriptor.
  if (failed()) output_->sync();
  if (!failed()) fail(output_->trim());
  if (index_) {
    fail(index_->end(durable));
  } else if (!failed()) {
    whole_files().remember(file_.fd());
  }
  if (durable && fdatasync(file_.fd()) != 0) fail(errno);
  // Before the descriptor is closed: a child that was cloned without fork(3) shares the lock.
  flock(file_.fd(), LOCK_UN);
  fail(file_.close(), "cannot close");
}

void PacketWriter::remove() noexcept {
  remove_file(own_, path_);
  if (index_) index_->remove(path_);
}

}  // namespace daqiri
