/// A writer of frames in device memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "storage/write_backend.h"
#include "system/file.h"

namespace daqiri::test {

/// Claims to write from device memory, which the CPU can read here.
class DeviceBackend final : public WriteBackend {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "device"; }
  [[nodiscard]] bool from_device() const noexcept override { return true; }
  int begin(int fd, const std::string& /*path*/) noexcept override {
    fd_ = fd;
    return 0;
  }
  void end() noexcept override { fd_ = -1; }
  int write(std::span<const iovec> pieces, std::uint64_t offset,
            std::uint64_t& written) noexcept override {
    if (pieces.size() != 1) single_ = false;
    iovec piece = pieces.front();
    return write_pieces(fd_, &piece, 1, offset, written);
  }

  /// Whether each call had a single piece.
  [[nodiscard]] bool single() const noexcept { return single_; }

 private:
  int fd_{-1};
  std::atomic<bool> single_{true};
};

}  // namespace daqiri::test
