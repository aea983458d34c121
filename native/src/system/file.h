/// A file that is closed when its owner goes, and errors that name it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "daqiri/error.h"

namespace daqiri {

/// "<what was done> <path>: <text of errno>".
std::string file_problem(const std::string& action, const std::string& path, int error_number);
/// GENERIC_FAILURE with the text of file_problem.
Error file_error(const std::string& action, const std::string& path, int error_number);

/// Owns a descriptor.
class File {
 public:
  File() = default;
  explicit File(int fd) noexcept : fd_(fd) {}
  File(File&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), kept_(std::exchange(other.kept_, false)) {}
  File& operator=(File&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
      kept_ = std::exchange(other.kept_, false);
    }
    return *this;
  }
  ~File() { close(); }

  /// Children that are forked from now on do not get the descriptor: a lock on it, or the other end
  /// of it, must not outlive this process. In the child its number stands for /dev/null.
  void keep_from_children();

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  /// Returns errno, 0: fine.
  int close() noexcept;
  /// The descriptor, which now belongs to the caller.
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_{-1};
  bool kept_{false};
};

/// Write all of `size` bytes at `offset`. Returns errno, 0: done.
int write_fully(int fd, const void* data, std::size_t size, std::uint64_t offset) noexcept;
/// For `write_pieces`: behind what was written before, as pipes have it.
inline constexpr std::uint64_t AT_POSITION = ~std::uint64_t{0};
/// Write `count` pieces (at most IOV_MAX) one behind the other at `offset`; they are used up.
/// `written`: how many bytes are in the file. Returns errno, 0: all.
int write_pieces(int fd, iovec* pieces, std::size_t count, std::uint64_t offset,
                 std::uint64_t& written) noexcept;

/// Throws Error INVALID_PARAMETER unless `directory` is absolute and exists, and `prefix` can begin
/// a file name.
void require_target(const std::string& directory, const std::string& prefix);

/// In this thread, a file that grows beyond the process's limit fails with EFBIG instead of ending
/// the process (SIGXFSZ).
void block_file_size_signal() noexcept;

}  // namespace daqiri
