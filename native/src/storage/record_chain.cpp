#include "storage/record_chain.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "storage/pcap_format.h"

namespace daqiri::pcap {

std::uint64_t whole_records_end(int fd, std::uint64_t size, int& error_number) {
  constexpr std::size_t WINDOW = std::size_t{256} * 1024;
  const auto window = std::make_unique_for_overwrite<unsigned char[]>(WINDOW);
  std::uint64_t begin = 0;
  std::uint64_t filled = 0;
  std::uint64_t at = sizeof(FileHeader);
  error_number = 0;
  while (size - at >= sizeof(RecordHeader)) {
    if (at < begin || at + sizeof(RecordHeader) > begin + filled) {
      const ssize_t n = pread(fd, window.get(), WINDOW, static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < static_cast<ssize_t>(sizeof(RecordHeader))) {
        error_number = n < 0 ? errno : EIO;
        return at;
      }
      begin = at;
      filled = static_cast<std::uint64_t>(n);
    }
    RecordHeader record;
    std::memcpy(&record, window.get() + (at - begin), sizeof record);
    // Zeros are what a crash leaves where data had not reached the disk.
    if (record == RecordHeader{}) return at;
    if (record.captured > MAX_RECORD || record.captured > size - at - sizeof record) return at;
    at += sizeof record + record.captured;
  }
  return at;
}

}  // namespace daqiri::pcap
