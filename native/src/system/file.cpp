#include "system/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace daqiri {

std::string file_problem(const std::string& action, const std::string& path, int error_number) {
  return action + " " + path + ": " + std::generic_category().message(error_number);
}

Error file_error(const std::string& action, const std::string& path, int error_number) {
  return {Status::GENERIC_FAILURE, file_problem(action, path, error_number)};
}

int File::close() noexcept {
  if (fd_ < 0) return 0;
  return ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR ? 0 : errno;
}

int write_fully(int fd, const void* data, std::size_t size, std::uint64_t offset) noexcept {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = pwrite(fd, bytes, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    bytes += n;
    size -= static_cast<std::size_t>(n);
    offset += static_cast<std::uint64_t>(n);
  }
  return 0;
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
