#include "system/file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <set>
#include <system_error>

namespace daqiri {

namespace {

/// Largest errno of Linux.
constexpr int LAST_ERRNO = 4095;

constinit std::atomic<ErrorText> other_errors{nullptr};

}  // namespace

RegisteredErrorText::RegisteredErrorText(ErrorText text_of) noexcept {
  other_errors.store(text_of, std::memory_order_release);
}

std::string file_problem(const std::string& action, const std::string& path, int error_number) {
  const ErrorText text_of = other_errors.load(std::memory_order_acquire);
  return action + " " + path + ": " +
         (error_number > LAST_ERRNO && text_of != nullptr
              ? text_of(error_number)
              : std::generic_category().message(error_number));
}

Error file_error(const std::string& action, const std::string& path, int error_number) {
  return {Status::GENERIC_FAILURE, file_problem(action, path, error_number)};
}

std::vector<int> open_descriptors() {
  std::vector<int> found;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd", error))
    found.push_back(std::stoi(each.path().filename().string()));
  return found;
}

namespace {

/// Descriptors that a forked child does not keep. Never destroyed, because files are also closed at
/// exit.
struct PrivateFiles {
  std::mutex mutex;
  std::set<int> fds;
};

PrivateFiles& private_files() {
  static PrivateFiles& files = *[] {
    auto* made = new PrivateFiles;
    pthread_atfork([] { private_files().mutex.lock(); }, [] { private_files().mutex.unlock(); },
                   [] {
                     // The numbers stay in use, because their owners in the child may still close
                     // them.
                     const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
                     for (const int fd : private_files().fds) {
                       if (null < 0 || dup3(null, fd, O_CLOEXEC) < 0) ::close(fd);
                     }
                     if (null >= 0) ::close(null);
                     private_files().mutex.unlock();
                   });
    return made;
  }();
  return files;
}

}  // namespace

std::unique_lock<std::mutex> File::lock_private_files() {
  return std::unique_lock(private_files().mutex);
}

void File::make_private() {
  private_files().fds.insert(fd_);
  private_ = true;
}

int File::release() noexcept {
  if (std::exchange(private_, false)) {
    const std::unique_lock lock = lock_private_files();
    private_files().fds.erase(fd_);
  }
  return std::exchange(fd_, -1);
}

int File::close() noexcept {
  const int fd = release();
  return fd < 0 || ::close(fd) == 0 || errno == EINTR ? 0 : errno;
}

FileIdentity identity_of(const File& file) noexcept {
  struct stat found{};
  return fstat(file.fd(), &found) == 0 ? FileIdentity{found.st_dev, found.st_ino} : FileIdentity{};
}

void remove_file(const FileIdentity& file, const std::string& path) noexcept {
  struct stat named{};
  if (lstat(path.c_str(), &named) == 0 && file == FileIdentity{named.st_dev, named.st_ino})
    unlink(path.c_str());
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
    for (auto taken = static_cast<std::size_t>(n); taken > 0 && count > 0;) {
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
  const auto refuse = [](const std::string& what) { throw Error(Status::INVALID_PARAMETER, what); };
  if (directory.empty() || directory.front() != '/')
    refuse("directory '" + directory + "' is not absolute; give a path that begins with /");
  struct stat found{};
  if (stat(directory.c_str(), &found) != 0) {
    refuse(file_problem("directory", directory, errno) +
           "; create it first, or name one that exists");
  }
  if (!S_ISDIR(found.st_mode))
    refuse(directory + " is not a directory; name the directory to write to");
  if (prefix.empty() || prefix.find_first_of("/\\\0"s) != std::string::npos) {
    refuse("file prefix '" + prefix +
           "' is not accepted: it must not be empty nor contain / or \\ (the directory is a "
           "separate argument)");
  }
}

void block_file_size_signal() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace daqiri
