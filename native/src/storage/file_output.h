/// How bytes get into a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/record_batch.h"

namespace daqiri {

enum class WriterKind : std::uint8_t { BUFFERED, DIRECT, AUTO };

/// Allocates disk blocks behind the end of a file that grows, in large pieces: the disk gets longer
/// stretches, and the kernel has less to do for each page. The size of the file does not change.
///
/// As much again as the file has, up to a limit and not for small files. Where the file system
/// cannot, or the disk is full, the file grows without.
class Preallocation {
 public:
  /// Begin with the open file `fd`, whose data end at `size`.
  void begin(int fd, std::uint64_t size) noexcept;
  /// Data up to `end` are about to be written.
  void reserve(std::uint64_t end) noexcept;
  /// Free the blocks behind `size`, where the file is cut. Returns errno, 0: done, or there are
  /// none.
  int trim(std::uint64_t size) noexcept;

 private:
  /// A shorter file gets no blocks in advance.
  static constexpr std::uint64_t LEAST = std::uint64_t{1} << 20U;
  static constexpr std::uint64_t MOST = std::uint64_t{64} << 20U;

  int fd_{-1};
  std::uint64_t end_{0};
  bool possible_{false};
};

/// Puts batches of records behind what is in a file. One file at a time, one thread.
class FileOutput {
 public:
  FileOutput() = default;
  FileOutput(const FileOutput&) = delete;
  FileOutput& operator=(const FileOutput&) = delete;
  virtual ~FileOutput() = default;

  /// "buffered", "direct"
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// Go on behind the first `whole.size` bytes of the open file `fd`. Returns errno, 0: fine.
  virtual int begin(int fd, const FileTally& whole) noexcept = 0;
  /// Take a batch. Returns errno, 0: taken; after an error only `sync` and `begin` may be called.
  virtual int put(RecordBatch& batch) noexcept = 0;
  /// Wait until all that was taken is in the file. Returns errno, 0: fine. After an error of it or
  /// of `put`, nothing is on its way to the file any more.
  virtual int sync() noexcept = 0;
  /// Free what is allocated behind the end of the file; after a `sync` without error. Returns
  /// errno.
  int trim() noexcept { return preallocation_.trim(whole_.size); }
  /// What is in the file by now, whatever becomes of the process.
  [[nodiscard]] const FileTally& whole() const noexcept { return whole_; }

 protected:
  FileTally whole_;
  Preallocation preallocation_;
};

/// Through the page cache, straight from the packets.
std::unique_ptr<FileOutput> buffered_output(bool preallocates = false);

/// For files that grow: with preallocation. As `wanted`, as far as the file system of `directory`
/// allows; otherwise buffered, and `why_not` tells the reason.
std::unique_ptr<FileOutput> make_output(WriterKind wanted, const std::string& directory,
                                        std::string& why_not);

}  // namespace daqiri
