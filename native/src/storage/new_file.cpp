#include "storage/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace daqiri {

void refuse_existing(const std::string& path, const std::string& what) {
  throw Error(Status::INVALID_PARAMETER,
              path + " exists and " + what + "; choose another prefix or move the file away");
}

NewFile::NewFile(std::string path, bool shared) : path_(std::move(path)) {
  if (access(path_.c_str(), F_OK) == 0) refuse_existing(path_, "is not overwritten");
  // /proc is needed to give the file its name.
  if (access("/proc/self/fd", F_OK) == 0) {
    const std::string folder = path_.substr(0, path_.rfind('/') + 1);
    file_ = File::private_to_process(
        [&] { return open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666); });
  }
  if (!file_.is_open()) {
    file_ = File::private_to_process([&] {
      return open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
    });
    if (!file_.is_open() && errno == EEXIST) refuse_existing(path_, "is not overwritten");
    if (!file_.is_open()) throw file_error("cannot create", path_, errno);
    named_ = true;
  }
  lock_for_writing(file_, path_, shared);
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

struct stat lock_for_writing(const File& file, const std::string& path, bool shared) {
  struct stat found{};
  // If the file system does not support locks, continue without one.
  const bool locked =
      flock(file.fd(), (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  if (fstat(file.fd(), &found) != 0) throw file_error("cannot examine", path, errno);
  if (!S_ISREG(found.st_mode)) refuse_existing(path, "is not a regular file");
  if (locked) return found;
  throw Error(Status::NOT_READY,
              path + " is being written by another writer; wait until it has finished");
}

File open_again(int fd, int flags) {
  const std::string same = "/proc/self/fd/" + std::to_string(fd);
  return File::private_to_process([&] { return open(same.c_str(), flags | O_CLOEXEC); });
}

bool file_has(const File& file, std::uint64_t bytes) noexcept {
  struct statx found{};
  // Use cached attributes: a network file system would otherwise write all data to its server
  // first.
  return statx(file.fd(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE | STATX_NLINK,
               &found) != 0 ||
         (found.stx_nlink > 0 && found.stx_size >= bytes);
}

std::string gone_error(const std::string& path) {
  return path + " was removed or cut while it was being written";
}

}  // namespace daqiri
