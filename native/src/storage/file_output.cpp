#include "storage/file_output.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "storage/direct_output.h"
#include "system/file.h"

namespace daqiri {

void Preallocation::begin(int fd, std::uint64_t size) noexcept {
  fd_ = fd;
  end_ = size;
  // In memory, pages are found no faster in advance.
  struct statfs system{};
  possible_ =
      fstatfs(fd, &system) == 0 && system.f_type != TMPFS_MAGIC && system.f_type != RAMFS_MAGIC;
}

void Preallocation::reserve(std::uint64_t end) noexcept {
  if (!possible_ || end <= end_ || end < LEAST) return;
  const std::uint64_t from = end_;
  end_ = end + std::min(end, MOST);
  possible_ = fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                        static_cast<off_t>(end_ - from)) == 0;
}

int Preallocation::trim(std::uint64_t size) noexcept {
  if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return errno;
  end_ = size;
  return 0;
}

namespace {

class BufferedOutput final : public FileOutput {
 public:
  explicit BufferedOutput(bool preallocates) : preallocates_(preallocates) {}

  [[nodiscard]] const char* name() const noexcept override { return "buffered"; }

  int begin(int fd, const FileTally& whole) noexcept override {
    fd_ = fd;
    whole_ = whole;
    if (preallocates_) preallocation_.begin(fd, whole.size);
    return 0;
  }

  int put(RecordBatch& batch) noexcept override {
    preallocation_.reserve(batch.before().size + batch.bytes());
    std::uint64_t written = 0;
    const int problem =
        write_pieces(fd_, batch.pieces(), batch.num_pieces(), batch.before().size, written);
    whole_ = batch.tally_at(written);
    return problem;
  }

  int sync() noexcept override { return 0; }

 private:
  bool preallocates_;
  int fd_{-1};
};

}  // namespace

std::unique_ptr<FileOutput> buffered_output() { return std::make_unique<BufferedOutput>(false); }

std::unique_ptr<FileOutput> make_output(WriterKind wanted, const std::string& directory,
                                        std::string& why_not) {
  why_not.clear();
  if (wanted != WriterKind::BUFFERED) {
    auto direct = DirectOutput::make(directory, why_not);
    if (direct != nullptr) return direct;
  }
  return std::make_unique<BufferedOutput>(true);
}

}  // namespace daqiri
