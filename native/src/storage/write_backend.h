/// Backends that write frames from their buffers to disk.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "memory/region.h"

namespace daqiri {

/// What cuFile says where the kernel lacks nvidia-fs: it copies by way of the host's memory, too.
inline constexpr const char* COMPATIBILITY_MODE = "compatibility mode";

/// Writes to one file at a time, which begins and ends while nothing is under way. Writes come from
/// several threads.
///
/// Numbers of errors are those of errno, or have a text by RegisteredErrorText.
class WriteBackend {
 public:
  WriteBackend() = default;
  WriteBackend(const WriteBackend&) = delete;
  WriteBackend& operator=(const WriteBackend&) = delete;
  virtual ~WriteBackend() = default;

  /// "direct", "cufile"; "buffered" where a file has refused it.
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// How cuFile does it; empty: another does.
  [[nodiscard]] virtual std::string cufile_mode() const { return {}; }
  /// Whether it writes device memory, a piece at a time, of any length and to any offset. Else it
  /// writes the host's, in whole pages.
  [[nodiscard]] virtual bool from_device() const noexcept = 0;
  /// Go on with this open file, which has that path. Returns the error's number, 0: fine.
  virtual int begin(int fd, const std::string& path) noexcept = 0;
  /// Let go of the file.
  virtual void end() noexcept = 0;
  /// Write pieces one behind the other at `offset`; `written`: how many bytes are in the file.
  /// Returns the error's number, 0: all.
  virtual int write(std::span<const iovec> pieces, std::uint64_t offset,
                    std::uint64_t& written) noexcept = 0;
};

/// With O_DIRECT; through the page cache, with a warning, where a file refuses it.
std::unique_ptr<WriteBackend> direct_backend();

/// Makes what writes frames of a region with cuFile to files in a directory. Throws Error
/// NOT_SUPPORTED with what keeps it from that.
using MakeCufile = std::unique_ptr<WriteBackend> (*)(const memory::MemoryRegion& region,
                                                     const std::string& directory);
/// As a static object beside what it registers.
struct RegisteredCufile {
  explicit RegisteredCufile(MakeCufile make) noexcept;
};
/// Throws Error NOT_SUPPORTED, also where this build has none.
std::unique_ptr<WriteBackend> cufile_backend(const memory::MemoryRegion& region,
                                             const std::string& directory);

}  // namespace daqiri
