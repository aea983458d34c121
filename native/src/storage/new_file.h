/// New files, created without overwriting and locked for one writer.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "system/file.h"

namespace daqiri {

/// A new, locked file. If the file system supports files without names, it gets its name after its
/// header is written. Unless it is taken, it is deleted with this object.
class NewFile {
 public:
  /// `shared`: others may lock it for reading. Throws Error: INVALID_PARAMETER if `path` exists,
  /// GENERIC_FAILURE.
  explicit NewFile(std::string path, bool shared = false);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  [[nodiscard]] int fd() const noexcept { return file_.fd(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Give the file its name. Throws Error INVALID_PARAMETER if a file with that name has appeared.
  void appear();
  File take() noexcept { return std::move(file_); }

 private:
  std::string path_;
  File file_;
  bool named_{false};
};

/// Locks the open file, which is private to the process, for a single writer; returns its status
/// after locking. Throws Error: INVALID_PARAMETER if it is not a regular file, NOT_READY while
/// another writer has it.
struct stat lock_for_writing(const File& file, const std::string& path, bool shared = false);

/// Open the file of `fd` again, which may have no name. On failure, errno is set.
File open_again(int fd, int flags);

/// Whether the open file still has a name and at least `bytes` bytes.
[[nodiscard]] bool file_has(const File& file, std::uint64_t bytes) noexcept;
/// The text of an error about a file that lacks them.
[[nodiscard]] std::string gone_error(const std::string& path);

/// Throws Error INVALID_PARAMETER: `path` exists and `what`.
[[noreturn]] void refuse_existing(const std::string& path, const std::string& what);

}  // namespace daqiri
