/// A file that is closed by its owner's destructor, and errors that contain its path.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daqiri/error.h"

namespace daqiri {

/// Texts for error numbers of libraries, which are larger than any errno.
using ErrorText = std::string (*)(int number);
/// Define as a static object next to the function that it registers.
struct RegisteredErrorText {
  explicit RegisteredErrorText(ErrorText text_of) noexcept;
};

/// "<action> <path>: <text of errno, or of a library's error>".
std::string file_problem(const std::string& action, const std::string& path, int error_number);
/// GENERIC_FAILURE with the text of file_problem.
Error file_error(const std::string& action, const std::string& path, int error_number);

/// Descriptors that this process has at this moment; others may close them.
std::vector<int> open_descriptors();

/// Owns a descriptor.
class File {
 public:
  File() = default;
  explicit File(int fd) noexcept : fd_(fd) {}
  File(File&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), private_(std::exchange(other.private_, false)) {}
  File& operator=(File other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(private_, other.private_);
    return *this;
  }
  ~File() { close(); }
  /// Owns the descriptor that `make` returns (-1: failed, see errno). A child made by fork(2) does
  /// not have it: there its number refers to /dev/null, so that a child that outlives the owner
  /// keeps no port bound, no connection open and no lock held. `make` must not wait, because fork
  /// is blocked during the call.
  template <typename Make>
  static File private_to_process(Make&& make) {
    const std::unique_lock lock = lock_private_files();
    File file(make());
    if (file.is_open()) file.make_private();
    return file;
  }

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  /// Returns errno, 0: success.
  int close() noexcept;
  /// Return the descriptor, which the caller owns now.
  int release() noexcept;

 private:
  static std::unique_lock<std::mutex> lock_private_files();
  void make_private();

  int fd_{-1};
  bool private_{false};
};

/// Which file it is, whatever its name.
struct FileIdentity {
  dev_t device{0};
  ino_t inode{0};
  bool operator==(const FileIdentity&) const = default;
};
/// Of an open file; of another, that of none.
FileIdentity identity_of(const File& file) noexcept;
/// Remove this file from `path`, unless another file has that name now.
void remove_file(const FileIdentity& file, const std::string& path) noexcept;

/// Write all of `size` bytes at `offset`. Returns errno, 0: done.
int write_fully(int fd, const void* data, std::size_t size, std::uint64_t offset) noexcept;

/// Offset for `write_pieces`: after the previous write, as for pipes.
inline constexpr std::uint64_t AT_POSITION = ~std::uint64_t{0};
/// Write `count` pieces (at most IOV_MAX) one after another at `offset`; modifies the pieces.
/// `written`: number of bytes in the file. Returns errno, 0: all were written.
int write_pieces(int fd, iovec* pieces, std::size_t count, std::uint64_t offset,
                 std::uint64_t& written) noexcept;

/// Throws Error INVALID_PARAMETER unless `directory` is absolute and exists, and `prefix` is valid
/// at the beginning of a file name.
void require_target(const std::string& directory, const std::string& prefix);

/// In this thread, a write beyond the process's file size limit fails with EFBIG instead of ending
/// the process (SIGXFSZ).
void block_file_size_signal() noexcept;

}  // namespace daqiri
