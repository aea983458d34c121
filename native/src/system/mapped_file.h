/// A memory-mapped file that other programs may truncate while it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "system/file.h"

namespace daqiri {

/// The bytes of a file, read-only, as many as it has when it is mapped.
///
/// Bytes that are gone when they are read (the file was cut, the disk has an error) read as zero,
/// and `require_whole` throws from then on; without this the kernel ends the process (SIGBUS). To
/// that end there is a handler of SIGBUS, which passes on what is not its own.
class MappedFile {
 public:
  /// Keeps a descriptor of its own. Throws Error GENERIC_FAILURE with `name` and errno.
  MappedFile(int fd, std::string name);
  ~MappedFile();

  [[nodiscard]] const std::uint8_t* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] int fd() const noexcept { return file_.fd(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Throws Error GENERIC_FAILURE when the file is shorter than it was, or some of it could not be
  /// read. To be called after reading: what was read before it returns is what the file had.
  void require_whole() const;

  /// What the handler of SIGBUS knows of a mapping. Never freed.
  struct Watch;

 private:
  std::string name_;
  File file_;
  const std::uint8_t* data_{nullptr};
  std::uint64_t size_{0};
  Watch* watch_{nullptr};
};

}  // namespace daqiri
