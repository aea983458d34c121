#include "storage/record_source.h"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "system/file.h"

namespace daqiri::pcap {

namespace {

const std::uint8_t* first_nonzero(const std::uint8_t* begin, const std::uint8_t* end) noexcept {
  return std::find_if(begin, end, [](std::uint8_t byte) { return byte != 0; });
}

}  // namespace

std::uint64_t MemoryRecords::zeros_end(std::uint64_t at) const noexcept {
  return static_cast<std::uint64_t>(first_nonzero(data_ + at, data_ + size_) - data_);
}

bool FileRecords::pays(int fd) noexcept {
  struct statfs found{};
  return fstatfs(fd, &found) == 0 && found.f_type == TMPFS_MAGIC;
}

void FileRecords::fill(std::uint64_t at, std::size_t least, std::size_t most) {
  begin_ = end_ = at;
  while (end_ - begin_ < least) {
    const ssize_t n = pread(fd_, window_.get() + (end_ - begin_), most - (end_ - begin_),
                            static_cast<off_t>(end_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error("cannot read", name_, errno);
    if (n == 0) {
      throw Error(Status::GENERIC_FAILURE, name_ + " was cut to " + std::to_string(end_) +
                                               " bytes while it was read; read it again");
    }
    end_ += static_cast<std::uint64_t>(n);
  }
}

RecordHeader FileRecords::read(std::uint64_t at, std::uint64_t step) {
  if (at < begin_ || at + sizeof(RecordHeader) > end_)
    fill(at, sizeof(RecordHeader), step < LONG_RECORD ? WINDOW : sizeof(RecordHeader));
  RecordHeader header;
  std::memcpy(&header, window_.get() + (at - begin_), sizeof header);
  return header;
}

std::uint64_t FileRecords::zeros_end(std::uint64_t at) {
  while (at < size_) {
    fill(at, 1, WINDOW);
    const std::uint8_t* end = window_.get() + (end_ - begin_);
    const std::uint8_t* found = first_nonzero(window_.get(), end);
    if (found != end) return at + static_cast<std::uint64_t>(found - window_.get());
    at = end_;
  }
  return size_;
}

}  // namespace daqiri::pcap
