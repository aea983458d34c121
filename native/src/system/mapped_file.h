/// A memory-mapped file that other programs may truncate while it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "system/file.h"

namespace daqiri {

/// The bytes of a file, read-only, with the size at the time of mapping.
///
/// Bytes that cannot be read (the file was truncated, or the disk has an error) read as zero, and
/// `require_whole` throws from then on; otherwise the kernel would end the process (SIGBUS). A
/// SIGBUS handler does this; it forwards other signals.
class MappedFile {
 public:
  /// Keeps a separate descriptor. Throws Error GENERIC_FAILURE with `name` and errno.
  MappedFile(int fd, std::string name);
  ~MappedFile();

  [[nodiscard]] const std::uint8_t* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] int fd() const noexcept { return file_.fd(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Throws Error GENERIC_FAILURE if the file is shorter than before, or if some of it could not be
  /// read. Call after reading: if it returns, everything read before was the file's contents.
  void require_whole() const;

  /// State of the SIGBUS handler for a mapping. Never freed.
  struct Watch;

 private:
  std::string name_;
  File file_;
  const std::uint8_t* data_{nullptr};
  std::uint64_t size_{0};
  Watch* watch_{nullptr};
};

}  // namespace daqiri
