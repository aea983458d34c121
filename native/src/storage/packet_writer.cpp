#include "storage/packet_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "storage/whole_files.h"
#include "timing/clock.h"

namespace daqiri {

void refuse_existing(const std::string& path, const std::string& what) {
  throw Error(Status::INVALID_PARAMETER,
              path + " exists and " + what + "; choose another prefix or move the file away");
}

PacketWriter::PacketWriter(std::unique_ptr<FileOutput> output, TailGuard* guard)
    : output_(std::move(output)),
      guard_(guard),
      batch_(std::make_unique_for_overwrite<RecordBatch>()) {}

namespace {

/// A new file in the folder of `path` without a name; closed where there are no such files.
File nameless_file(const std::string& path) {
  // By way of which it gets its name.
  if (access("/proc/self/fd", F_OK) != 0) return File();
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return File(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644));
}

}  // namespace

bool PacketWriter::open_file(const std::string& path, bool may_exist) {
  path_ = path;
  failed_ = false;
  tally_ = {};
  constexpr int FLAGS = O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  File file = may_exist ? File() : nameless_file(path);
  named_ = !file.is_open();
  if (named_) file = File(open(path.c_str(), FLAGS | O_CREAT | O_EXCL, 0644));
  const bool created = file.is_open();
  if (!created) {
    if (errno != EEXIST) throw file_error("cannot create", path, errno);
    if (!may_exist) refuse_existing(path, "is not overwritten");
    file = File(open(path.c_str(), FLAGS));
    if (!file.is_open()) throw file_error("cannot open", path, errno);
  }
  struct stat found{};
  if (fstat(file.fd(), &found) != 0) throw file_error("cannot look at", path, errno);
  if (!S_ISREG(found.st_mode)) refuse_existing(path, "is not a regular file");
  // Where the file system has no locks, we go without.
  if (flock(file.fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(Status::NOT_READY,
                path + " is being written by somebody else; wait until that is done");
  }
  file_ = std::move(file);
  return created;
}

void PacketWriter::begin_records(std::uint64_t size, std::uint64_t before) {
  size_before_ = before;
  tally_.size = size;
  const int problem = output_->begin(file_.fd(), tally_);
  if (problem != 0) throw file_error("cannot write", path_, problem);
  appear();
  if (guard_ != nullptr) guard_->watch(file_.fd(), path_, size);
}

void PacketWriter::appear() {
  if (named_) return;
  const std::string nameless = "/proc/self/fd/" + std::to_string(file_.fd());
  if (linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    if (errno == EEXIST) refuse_existing(path_, "is not overwritten");
    throw file_error("cannot create", path_, errno);
  }
  named_ = true;
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
    if (!batch_->has_room()) flush();
    std::uint64_t time = burst.timestamps[i];
    if (time == 0) time = now != 0 ? now : (now = realtime_ns());
    add(*batch_, burst, prefixes, i, time);
  }
  if (!failed_) flush();
  return tally_.packets > before ? static_cast<std::uint32_t>(tally_.packets - before) : 0;
}

void PacketWriter::flush() noexcept {
  RecordBatch& batch = *batch_;
  batch.finish();
  if (const int problem = prepare(batch); problem != 0) {
    fail("cannot write", problem);
    cut(batch.before());
  } else if (const int put = output_->put(batch); put != 0) {
    fail("cannot write", put);
    cut(output_->whole());
  } else {
    tally_ = batch.tally_at(batch.bytes());
    note_landed();
  }
  batch.begin(tally_);
}

void PacketWriter::note_landed() noexcept {
  const FileTally& whole = output_->whole();
  if (guard_ != nullptr) guard_->commit(whole.size);
  const int problem = landed(whole);
  if (problem == 0) return;
  fail("cannot write", problem);
  cut(whole);
}

void PacketWriter::settle() noexcept {
  if (!is_open() || failed_) return;
  const int problem = output_->settle();
  if (problem == 0) return note_landed();
  fail("cannot write", problem);
  cut(output_->whole());
}

void PacketWriter::fail(const char* action, int error_number) noexcept {
  if (failed_) return;
  failed_ = true;
  failed_action_ = action;
  failed_errno_ = error_number;
  cut_errno_ = 0;
}

void PacketWriter::cut(const FileTally& limit) noexcept {
  output_->settle();
  const FileTally& whole = output_->whole();
  tally_ = whole.packets < limit.packets ? whole : limit;
  if (ftruncate(file_.fd(), static_cast<off_t>(tally_.size)) != 0) cut_errno_ = errno;
  if (guard_ != nullptr) guard_->commit(tally_.size);
  landed(tally_);
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
  settle();
  int problem = end(durable);
  if (problem == 0 && durable && fdatasync(file_.fd()) != 0) problem = errno;
  if (problem != 0) fail("cannot write", problem);
  if (!failed_ || cut_errno_ == 0) whole_files().remember(file_.fd());
  if (guard_ != nullptr) guard_->forget();
  // By hand: a child that was forked meanwhile shares the lock.
  flock(file_.fd(), LOCK_UN);
  problem = file_.close();
  if (problem != 0) fail("cannot close", problem);
}

void PacketWriter::remove() noexcept {
  if (named_) unlink(path_.c_str());
}

}  // namespace daqiri
