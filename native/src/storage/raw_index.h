/// Index of a raw file: where each packet lies.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "storage/file_output.h"
#include "system/file.h"

namespace daqiri {

/// <path>.npy, a NumPy array (format 1.0) with a row for each packet of the file <path>: offset
/// (u8), length (u4), flow (u4), timestamp in ns (u8), little-endian. numpy.load reads it,
/// memory-mapped or not.
///
/// A row is written before its packet is and counted, in the header of the index, when the packet
/// is in the file: at any moment all rows that are counted tell the truth.
class RawIndex {
 public:
  struct Row {
    std::uint64_t offset;
    std::uint32_t length;
    std::uint32_t flow;
    std::uint64_t timestamp;
  };

  RawIndex();
  static std::string path_of(const std::string& path) { return path + ".npy"; }

  // All return errno, 0: fine.

  /// To `fd`.
  static int write_header(int fd, std::uint64_t rows) noexcept;
  /// Write to `file`, which has its header.
  void begin(File file) noexcept;
  /// The records of `batch` are about to be put into the file, all or the first of them.
  int add(const RecordBatch& batch) noexcept;
  /// The first `packets` packets are in the file.
  int count(std::uint64_t packets) noexcept;
  int end(bool durable) noexcept;
  /// Remove it, ended or not, from beside the file `path`, unless another file has its name by now.
  void remove(const std::string& path) noexcept;

 private:
  File file_;
  /// Which file that is, or was.
  struct stat own_{};
  std::vector<Row> rows_;
  std::uint64_t counted_{0};
  /// Of the last write of its header; 0: it says `counted_`.
  int header_errno_{0};
};
static_assert(sizeof(RawIndex::Row) == 24);

}  // namespace daqiri
