/// How bytes get into a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/record_batch.h"

namespace daqiri {

enum class WriterKind : std::uint8_t { BUFFERED, DIRECT, AUTO };

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
  /// Take a batch. Returns errno, 0: taken; after an error `settle` alone may be called.
  virtual int put(RecordBatch& batch) noexcept = 0;
  /// See to it that all that was taken is in the file, which has exactly that length then. Returns
  /// errno, 0: fine. After an error of it or of `put`, nothing is under way to the file any more.
  virtual int settle() noexcept = 0;
  /// What is in the file by now, whatever becomes of the process.
  [[nodiscard]] const FileTally& whole() const noexcept { return whole_; }

 protected:
  FileTally whole_;
};

/// Through the page cache, straight from the packets.
std::unique_ptr<FileOutput> buffered_output();

/// For files that grow: with room on the disk taken ahead. As `wanted`, as far as the file system
/// of `directory` and the kernel allow; otherwise buffered, and `why_not` tells the reason.
std::unique_ptr<FileOutput> make_output(WriterKind wanted, const std::string& directory,
                                        std::string& why_not);

}  // namespace daqiri
