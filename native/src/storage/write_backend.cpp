#include "storage/write_backend.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "daqiri/error.h"
#include "storage/direct_frames.h"
#include "storage/new_file.h"
#include "system/log.h"

namespace daqiri {

namespace {

class DirectBackend final : public WriteBackend {
 public:
  [[nodiscard]] const char* name() const noexcept override { return told_ ? "buffered" : "direct"; }
  [[nodiscard]] bool from_device() const noexcept override { return false; }

  int begin(int fd, const std::string& /*path*/) noexcept override {
    fd_ = fd;
    // A separate descriptor, because partial pages go through the page cache. If it cannot be
    // opened, everything goes through the page cache.
    direct_ = open_again(fd, O_WRONLY | O_DIRECT);
    if (!direct_.is_open() && !std::exchange(told_, true)) {
      log(LogLevel::WARN, file_problem("frames are buffered, not direct: O_DIRECT is rejected for",
                                       "their file", errno));
    }
    return 0;
  }

  void end() noexcept override {
    direct_.close();
    fd_ = -1;
  }

  int write(std::span<const iovec> pieces, std::uint64_t offset,
            std::uint64_t& written) noexcept override {
    int problem = direct_.is_open() ? put(direct_.fd(), pieces, offset, written) : EBADF;
    // Try again through the page cache, which accepts any length: this succeeds or returns the real
    // error.
    if (direct_write_refused(problem)) problem = put(fd_, pieces, offset, written);
    return problem;
  }

 private:
  static int put(int fd, std::span<const iovec> pieces, std::uint64_t offset,
                 std::uint64_t& written) noexcept {
    // A copy, because `write_pieces` modifies the pieces.
    std::array<iovec, DirectWrites::MOST_PIECES> used_up;
    std::ranges::copy(pieces, used_up.begin());
    return write_pieces(fd, used_up.data(), pieces.size(), offset, written);
  }

  int fd_{-1};
  /// The same file, opened with O_DIRECT.
  File direct_;
  /// Whether the warning about O_DIRECT was logged.
  bool told_{false};
};

constinit std::atomic<MakeCufile> cufile_maker{nullptr};

}  // namespace

std::unique_ptr<WriteBackend> direct_backend() { return std::make_unique<DirectBackend>(); }

RegisteredCufile::RegisteredCufile(MakeCufile make) noexcept {
  cufile_maker.store(make, std::memory_order_release);
}

std::unique_ptr<WriteBackend> cufile_backend(const memory::MemoryRegion& region,
                                             const std::string& directory) {
  const MakeCufile make = cufile_maker.load(std::memory_order_acquire);
  if (make == nullptr) throw Error(Status::NOT_SUPPORTED, "this build has no cuFile");
  return make(region, directory);
}

}  // namespace daqiri
