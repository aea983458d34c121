#include "storage/packet_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "timing/clock.h"

namespace daqiri {

void refuse_existing(const std::string& path, const std::string& what) {
  throw Error(Status::INVALID_PARAMETER,
              path + " exists and " + what + "; choose another prefix or move the file away");
}

void lock_for_writing(const File& file, const std::string& path) {
  struct stat found{};
  if (fstat(file.fd(), &found) != 0) throw file_error("cannot examine", path, errno);
  if (!S_ISREG(found.st_mode)) refuse_existing(path, "is not a regular file");
  // Where the file system has no locks, we go without.
  if (flock(file.fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(Status::NOT_READY,
                path + " is being written by somebody else; wait until that is done");
  }
}

std::uint32_t PacketPrefixes::write(std::uint32_t packet, std::byte* out) noexcept {
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

// --- A new file

NewFile::NewFile(std::string path) : path_(std::move(path)) {
  if (access(path_.c_str(), F_OK) == 0) refuse_existing(path_, "is not overwritten");
  // By way of which it gets its name.
  if (access("/proc/self/fd", F_OK) == 0) {
    const std::string folder = path_.substr(0, path_.rfind('/') + 1);
    file_ = File::private_to_process(
        [&] { return open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644); });
  }
  if (!file_.is_open()) {
    file_ = File::private_to_process([&] {
      return open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0644);
    });
    if (!file_.is_open() && errno == EEXIST) refuse_existing(path_, "is not overwritten");
    if (!file_.is_open()) throw file_error("cannot create", path_, errno);
    named_ = true;
  }
  lock_for_writing(file_, path_);
}

NewFile::~NewFile() {
  if (named_ && file_.is_open()) unlink(path_.c_str());
}

void NewFile::appear() {
  if (named_) return;
  const std::string nameless = "/proc/self/fd/" + std::to_string(file_.fd());
  if (linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    if (errno == EEXIST) refuse_existing(path_, "is not overwritten");
    throw file_error("cannot create", path_, errno);
  }
  named_ = true;
}

// --- The writer

PacketWriter::PacketWriter(std::unique_ptr<FileOutput> output)
    : output_(std::move(output)), batch_(std::make_unique_for_overwrite<RecordBatch>()) {}

NewFile& PacketWriter::prepare_file(const std::string& path) {
  discard_prepared();
  return *(next_ = std::make_unique<NewFile>(path));
}

void PacketWriter::create(const std::string& path) {
  close();
  if (next_ == nullptr || next_->path() != path) prepare(path);
  try {
    struct stat found{};
    if (fstat(next_->fd(), &found) != 0) throw file_error("cannot examine", path, errno);
    const auto size = static_cast<std::uint64_t>(found.st_size);
    appear();
    begin(next_->take(), path, size, 0);
  } catch (...) {
    discard_prepared();
    throw;
  }
  discard_prepared();
}

void PacketWriter::begin(File file, const std::string& path, std::uint64_t size,
                         std::uint64_t before) {
  path_ = path;
  failed_ = false;
  size_before_ = before;
  tally_ = {};
  tally_.size = size;
  file_ = std::move(file);
  const int problem = output_->begin(file_.fd(), tally_);
  if (problem == 0) return;
  if (before == 0) remove();
  file_.close();
  throw file_error("cannot write", path_, problem);
}

std::uint32_t PacketWriter::write(const Burst& burst, const LinkLayer& link, std::uint32_t first,
                                  std::uint32_t count, std::uint64_t size_limit) noexcept {
  if (!is_open() || failed_) return 0;
  const std::uint64_t before = tally_.packets;
  std::uint64_t now = 0;
  PacketPrefixes prefixes(link, burst);
  batch_->begin(tally_);
  for (std::uint32_t i = first;
       i < first + count && tally_.size + batch_->bytes() < size_limit && !failed_; ++i) {
    if (!batch_->has_room()) put_batch();
    std::uint64_t time = burst.timestamps[i];
    if (time == 0) time = now != 0 ? now : (now = realtime_ns());
    add(*batch_, burst, prefixes, i, time);
  }
  if (!failed_) put_batch();
  return tally_.packets > before ? static_cast<std::uint32_t>(tally_.packets - before) : 0;
}

void PacketWriter::put_batch() noexcept {
  RecordBatch& batch = *batch_;
  batch.finish();
  if (const int problem = before_put(batch); problem != 0) {
    fail("cannot write", problem);
    cut(batch.before());
  } else if (const int put = output_->put(batch); put != 0) {
    fail("cannot write", put);
    cut(output_->whole());
  } else {
    tally_ = batch.tally_at(batch.bytes());
    confirm();
  }
  batch.begin(tally_);
}

void PacketWriter::confirm() noexcept {
  const int problem = after_put(output_->whole());
  if (problem == 0) return;
  fail("cannot write", problem);
  cut(output_->whole());
}

void PacketWriter::sync() noexcept {
  if (!is_open() || failed_) return;
  const int problem = output_->sync();
  if (problem == 0) return confirm();
  fail("cannot write", problem);
  cut(output_->whole());
}

bool PacketWriter::retry() noexcept {
  if (!is_open() || cut_errno_ != 0 || output_->begin(file_.fd(), tally_) != 0) return false;
  failed_ = false;
  return true;
}

void PacketWriter::fail(const char* action, int error_number) noexcept {
  if (failed_) return;
  failed_ = true;
  failed_action_ = action;
  failed_errno_ = error_number;
  cut_errno_ = 0;
}

void PacketWriter::cut(const FileTally& limit) noexcept {
  output_->sync();
  const FileTally& whole = output_->whole();
  tally_ = whole.packets < limit.packets ? whole : limit;
  if (ftruncate(file_.fd(), static_cast<off_t>(tally_.size)) != 0) cut_errno_ = errno;
  after_put(tally_);
}

std::string PacketWriter::error() const {
  if (!failed_) return {};
  std::string text = file_problem(failed_action_, path_, failed_errno_);
  if (cut_errno_ != 0) {
    text += file_problem("; then its torn end could not be cut off:", path_, cut_errno_) +
            "; do it with 'truncate -s " + std::to_string(tally_.size) + " " + path_ + "'";
  }
  return text;
}

bool PacketWriter::still_there() const noexcept {
  if (!is_open()) return access(path_.c_str(), F_OK) == 0;
  struct stat found{};
  return fstat(file_.fd(), &found) != 0 || found.st_nlink > 0;
}

void PacketWriter::close(bool durable) noexcept {
  if (!file_.is_open()) return;
  sync();
  int problem = failed_ ? 0 : output_->trim();
  if (const int ended = end(durable); problem == 0) problem = ended;
  if (problem == 0 && durable && fdatasync(file_.fd()) != 0) problem = errno;
  if (problem != 0) fail("cannot write", problem);
  // Before the descriptor goes: a child that was cloned without fork(3) shares the lock.
  flock(file_.fd(), LOCK_UN);
  problem = file_.close();
  if (problem != 0) fail("cannot close", problem);
}

void PacketWriter::remove() noexcept { remove_file(file_, path_); }

}  // namespace daqiri
