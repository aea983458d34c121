#include "system/file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <system_error>
#include <vector>

namespace daqiri {

namespace {

/// Descriptors that a forked child does not get.
class KeptDescriptors {
 public:
  /// The process's; never destroyed.
  static KeptDescriptors& instance() {
    static auto* const kept = new KeptDescriptors;
    return *kept;
  }
  void add(int fd) {
    const std::lock_guard lock(mutex_);
    fds_.push_back(fd);
  }
  void remove(int fd) {
    const std::lock_guard lock(mutex_);
    std::erase(fds_, fd);
  }

 private:
  KeptDescriptors() {
    // Locked over a fork, so that the child finds the list whole.
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                     instance().close_all();
                     instance().mutex_.unlock();
                   });
  }
  /// In the child. The numbers stay taken: its copies of their owners still name them.
  void close_all() noexcept {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : fds_) {
      if (null < 0 || dup3(null, fd, O_CLOEXEC) < 0) ::close(fd);
    }
    if (null >= 0) ::close(null);
  }

  std::mutex mutex_;
  std::vector<int> fds_;
};

}  // namespace

std::string file_problem(const std::string& action, const std::string& path, int error_number) {
  return action + " " + path + ": " + std::generic_category().message(error_number);
}

Error file_error(const std::string& action, const std::string& path, int error_number) {
  return {Status::GENERIC_FAILURE, file_problem(action, path, error_number)};
}

void File::keep_from_children() {
  if (fd_ < 0 || kept_) return;
  KeptDescriptors::instance().add(fd_);
  kept_ = true;
}

int File::close() noexcept {
  if (fd_ < 0) return 0;
  if (std::exchange(kept_, false)) KeptDescriptors::instance().remove(fd_);
  return ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR ? 0 : errno;
}

int write_fully(int fd, const void* data, std::size_t size, std::uint64_t offset) noexcept {
  iovec piece{const_cast<void*>(data), size};
  std::uint64_t written = 0;
  return write_pieces(fd, &piece, 1, offset, written);
}

int write_pieces(int fd, iovec* pieces, std::size_t count, std::uint64_t offset,
                 std::uint64_t& written) noexcept {
  written = 0;
  for (;;) {
    for (; count > 0 && pieces->iov_len == 0; --count) ++pieces;
    if (count == 0) return 0;
    const off_t at = offset == AT_POSITION ? off_t{-1} : static_cast<off_t>(offset + written);
    const ssize_t n = pwritev2(fd, pieces, static_cast<int>(count), at, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    written += static_cast<std::uint64_t>(n);
    for (auto taken = static_cast<std::size_t>(n); taken > 0;) {
      const std::size_t part = std::min(taken, pieces->iov_len);
      pieces->iov_base = static_cast<std::byte*>(pieces->iov_base) + part;
      pieces->iov_len -= part;
      taken -= part;
      if (pieces->iov_len > 0) break;
      ++pieces;
      --count;
    }
  }
}

void require_target(const std::string& directory, const std::string& prefix) {
  using namespace std::string_literals;
  if (directory.empty() || directory.front() != '/') {
    throw Error(Status::INVALID_PARAMETER,
                "directory '" + directory + "' is not absolute; give a path that begins with /");
  }
  struct stat found{};
  if (stat(directory.c_str(), &found) != 0) {
    throw Error(Status::INVALID_PARAMETER, file_problem("directory", directory, errno) +
                                               "; create it first, or name one that exists");
  }
  if (!S_ISDIR(found.st_mode)) {
    throw Error(Status::INVALID_PARAMETER,
                directory + " is not a directory; name the directory to write to");
  }
  if (prefix.empty() || prefix.find_first_of("/\\\0"s) != std::string::npos) {
    throw Error(Status::INVALID_PARAMETER,
                "file prefix '" + prefix +
                    "' is not accepted: it must not be empty nor contain / or \\ (the "
                    "directory is given apart)");
  }
}

void block_file_size_signal() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace daqiri
