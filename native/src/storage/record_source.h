/// Where the record headers of a pcap file are read from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "storage/pcap_format.h"

namespace daqiri::pcap {

/// Bytes in memory, mapped or not. Touches record headers only.
class MemoryRecords {
 public:
  MemoryRecords(const std::uint8_t* data, std::uint64_t size) noexcept : data_(data), size_(size) {}

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// The record header at `at`, which lies inside; `step` is the length of the record before it.
  [[nodiscard]] RecordHeader read(std::uint64_t at, std::uint64_t /*step*/) const noexcept {
    RecordHeader header;
    std::memcpy(&header, data_ + at, sizeof header);
    return header;
  }
  /// Offset of the first byte from `at` on that is not zero; size(): there is none.
  [[nodiscard]] std::uint64_t zeros_end(std::uint64_t at) const noexcept;

 private:
  const std::uint8_t* data_;
  std::uint64_t size_;
};

/// An open file, read in windows. On tmpfs, whose pages are mapped one by one, copying all bytes
/// costs less than mapping the pages of the headers.
class FileRecords {
 public:
  /// `fd` stays open meanwhile, `name` is for errors.
  FileRecords(int fd, std::uint64_t size, std::string name)
      : fd_(fd),
        size_(size),
        name_(std::move(name)),
        window_(std::make_unique_for_overwrite<std::uint8_t[]>(WINDOW)) {}

  /// Whether this is the faster way to the headers of the file `fd`.
  static bool pays(int fd) noexcept;

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// As MemoryRecords::read. Throws Error GENERIC_FAILURE with name and errno.
  RecordHeader read(std::uint64_t at, std::uint64_t step);
  [[nodiscard]] std::uint64_t zeros_end(std::uint64_t at);

 private:
  static constexpr std::size_t WINDOW = std::size_t{256} * 1024;
  /// From this length on, a call for each header is cheaper than a copy of what lies between.
  static constexpr std::uint64_t LONG_RECORD = std::uint64_t{6} * 1024;

  /// At least `least` of up to `most` bytes.
  void fill(std::uint64_t at, std::size_t least, std::size_t most);

  int fd_;
  std::uint64_t size_;
  std::string name_;
  std::unique_ptr<std::uint8_t[]> window_;
  std::uint64_t begin_{0};
  std::uint64_t end_{0};
};

}  // namespace daqiri::pcap
