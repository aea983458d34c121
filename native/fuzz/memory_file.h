/// A file that is in memory only, for what reads descriptors.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "require.h"
#include "system/file.h"

namespace daqiri::fuzz {

class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("fuzz", MFD_CLOEXEC)) {}

  [[nodiscard]] int fd() const noexcept { return file_.fd(); }
  /// Nothing but this content.
  void hold(const std::uint8_t* data, std::size_t size) {
    require(ftruncate(fd(), 0) == 0 && write_fully(fd(), data, size, 0) == 0,
            "a file in memory can be written");
    lseek(fd(), 0, SEEK_SET);
  }
  [[nodiscard]] std::vector<std::uint8_t> content() const {
    struct stat found{};
    require(fstat(fd(), &found) == 0, "a file in memory has a size");
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(found.st_size));
    require(pread(fd(), bytes.data(), bytes.size(), 0) == found.st_size,
            "a file in memory can be read");
    return bytes;
  }

 private:
  File file_;
};

}  // namespace daqiri::fuzz
