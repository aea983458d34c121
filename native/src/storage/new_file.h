/// Files that nobody else has.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "system/file.h"

namespace daqiri {

/// A new file, locked, that gets its name once its header is in it, where the file system has files
/// without names. It goes away with its owner unless it is taken.
class NewFile {
 public:
  /// `shared`: others may lock it for reading. Throws Error: INVALID_PARAMETER when `path` exists,
  /// GENERIC_FAILURE.
  explicit NewFile(std::string path, bool shared = false);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  [[nodiscard]] int fd() const noexcept { return file_.fd(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Give it its name. Throws Error INVALID_PARAMETER when a file of that name has appeared.
  void appear();
  File take() noexcept { return std::move(file_); }

 private:
  std::string path_;
  File file_;
  bool named_{false};
};

/// Locks the open file, which is private to the process, for its only writer, and returns what it
/// is then. Throws Error INVALID_PARAMETER for what is no regular file, NOT_READY while somebody
/// else writes it.
struct stat lock_for_writing(const File& file, const std::string& path, bool shared = false);

/// The open file `fd`, which may have no name, with another descriptor. Not open: errno tells why.
File open_again(int fd, int flags);

/// Whether the open file still has a name and at least `bytes` bytes.
[[nodiscard]] bool file_has(const File& file, std::uint64_t bytes) noexcept;

/// Throws Error INVALID_PARAMETER: `path` exists and `what`.
[[noreturn]] void refuse_existing(const std::string& path, const std::string& what);

}  // namespace daqiri
