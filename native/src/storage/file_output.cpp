#include "storage/file_output.h"

#include <unistd.h>

#include <cerrno>

#include "storage/direct_output.h"
#include "storage/room_ahead.h"

namespace daqiri {

namespace {

class BufferedOutput final : public FileOutput {
 public:
  explicit BufferedOutput(bool takes_room_ahead) : takes_room_ahead_(takes_room_ahead) {}

  [[nodiscard]] const char* name() const noexcept override { return "buffered"; }

  int begin(int fd, const FileTally& whole) noexcept override {
    fd_ = fd;
    whole_ = whole;
    if (takes_room_ahead_) room_.begin(fd, whole.size);
    return 0;
  }

  int put(RecordBatch& batch) noexcept override {
    iovec* next = batch.pieces();
    std::size_t left = batch.num_pieces();
    std::uint64_t written = 0;
    int problem = 0;
    room_.reserve(batch.before().size + batch.bytes());
    while (written < batch.bytes()) {
      const ssize_t n = pwritev(fd_, next, static_cast<int>(left),
                                static_cast<off_t>(batch.before().size + written));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        problem = n < 0 ? errno : EIO;
        break;
      }
      written += static_cast<std::uint64_t>(n);
      auto taken = static_cast<std::size_t>(n);
      while (left > 0 && taken >= next->iov_len) {
        taken -= next->iov_len;
        ++next;
        --left;
      }
      if (left > 0) {
        next->iov_base = static_cast<std::byte*>(next->iov_base) + taken;
        next->iov_len -= taken;
      }
    }
    whole_ = batch.tally_at(written);
    return problem;
  }

  int settle() noexcept override {
    return room_.reaches_beyond(whole_.size) ? room_.give_back(whole_.size) : 0;
  }

 private:
  bool takes_room_ahead_;
  int fd_{-1};
  RoomAhead room_;
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
