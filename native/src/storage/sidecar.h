/// The metadata file next to a recorded file.
#pragma once

#include <cstddef>
#include <string>

#include "system/file.h"

namespace daqiri {

/// Tidies up what recorders that were killed have left in `directory`: their hidden files, and the
/// disk blocks behind the files that these belong to. What those hold stays as it is.
void remove_leftovers(const std::string& directory) noexcept;

/// It is written in one piece when the recorded file is complete; disk space for it is taken when
/// that is prepared, so that a full disk does not cost the metadata. Until then it is hidden and
/// locked: `.NAME.json.part`. It goes away with its owner unless it is finished.
class Sidecar {
 public:
  /// Take space for `size` bytes beside the file `path`. Throws Error: INVALID_PARAMETER when
  /// another recorder has that file, GENERIC_FAILURE with path and errno.
  Sidecar(const std::string& path, std::size_t size);
  Sidecar(const Sidecar&) = delete;
  Sidecar& operator=(const Sidecar&) = delete;
  ~Sidecar();

  /// <path>.json is there, whole, or Error is thrown and it is not; `durable`: once the disk has
  /// it.
  void finish(const std::string& text, bool durable);

 private:
  void create();

  std::string path_;
  std::string part_path_;
  File part_;
};

}  // namespace daqiri
