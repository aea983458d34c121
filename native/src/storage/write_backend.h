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

/// The mode of cuFile if the kernel lacks nvidia-fs: it copies through host memory, too.
inline constexpr const char* COMPATIBILITY_MODE = "compatibility mode";

/// Writes to one file at a time; `begin` and `end` are called while no write is in flight. Several
/// threads write.
///
/// Error numbers are those of errno, or have a text by RegisteredErrorText.
class WriteBackend {
 public:
  WriteBackend() = default;
  WriteBackend(const WriteBackend&) = delete;
  WriteBackend& operator=(const WriteBackend&) = delete;
  virtual ~WriteBackend() = default;

  /// "direct", "cufile"; "buffered" if a file does not support direct writes.
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// The mode of cuFile; empty: another backend.
  [[nodiscard]] virtual std::string cufile_mode() const { return {}; }
  /// Whether it writes device memory: one piece per call, of any length, at any offset. Otherwise
  /// it writes host memory, in whole pages.
  [[nodiscard]] virtual bool from_device() const noexcept = 0;
  /// Continue with this open file at `path`. Returns the error's number, 0: success.
  virtual int begin(int fd, const std::string& path) noexcept = 0;
  /// Stop using the file.
  virtual void end() noexcept = 0;
  /// Write pieces one after another at `offset`; `written`: number of bytes in the file. Returns
  /// the error's number, 0: all were written.
  virtual int write(std::span<const iovec> pieces, std::uint64_t offset,
                    std::uint64_t& written) noexcept = 0;
};

/// Uses O_DIRECT; for files that do not support it, the page cache, with a warning.
std::unique_ptr<WriteBackend> direct_backend();

/// Makes the backend that writes frames of a region with cuFile to files in a directory. Throws
/// Error NOT_SUPPORTED with the reason if it cannot.
using MakeCufile = std::unique_ptr<WriteBackend> (*)(const memory::MemoryRegion& region,
                                                     const std::string& directory);
/// Define as a static object next to the function that it registers.
struct RegisteredCufile {
  explicit RegisteredCufile(MakeCufile make) noexcept;
};
/// Throws Error NOT_SUPPORTED, also if this build has no cuFile.
std::unique_ptr<WriteBackend> cufile_backend(const memory::MemoryRegion& region,
                                             const std::string& directory);

}  // namespace daqiri
