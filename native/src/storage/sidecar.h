/// The metadata file beside a recorded file.
#pragma once

#include <cstddef>
#include <string>

#include "system/file.h"

namespace daqiri {

/// Written in one piece when the recorded file is complete. Room on the disk is taken when that is
/// begun, so that a disk that is full by then does not cost the metadata.
class Sidecar {
 public:
  Sidecar() = default;
  Sidecar(const Sidecar&) = delete;
  Sidecar& operator=(const Sidecar&) = delete;
  ~Sidecar() { abandon(); }

  /// Take room for `size` bytes. Throws Error GENERIC_FAILURE with path and errno.
  void begin(const std::string& path, std::size_t size);
  /// <path>.json is there, whole, or Error is thrown and it is not; `durable`: once the disk has
  /// it.
  void finish(const std::string& text, bool durable);
  /// Leave nothing behind.
  void abandon() noexcept;

 private:
  std::string path_;
  std::string part_path_;
  File part_;
};

}  // namespace daqiri
