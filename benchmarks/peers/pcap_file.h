/// A pcap file (little-endian, as written here) mapped into memory.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "peers/program.h"

namespace bench {

struct RecordHeader {
  std::uint32_t seconds;
  std::uint32_t fraction;
  std::uint32_t captured;
  std::uint32_t wire;
};
inline constexpr std::size_t FILE_HEADER = 24;

class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    const int fd = check(open(path, O_RDONLY | O_CLOEXEC), path);
    struct stat status{};
    check(fstat(fd, &status), path);
    size_ = static_cast<std::size_t>(status.st_size);
    void* mapped = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) fail("mmap");
    data_ = static_cast<const std::uint8_t*>(mapped);
    close(fd);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() { munmap(const_cast<std::uint8_t*>(data_), size_); }
  [[nodiscard]] const std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  const std::uint8_t* data_{nullptr};
  std::size_t size_{0};
};

}  // namespace bench
