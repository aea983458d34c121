/// The metadata file next to a recorded file.
#pragma once

#include <cstddef>
#include <string>

#include "system/file.h"

namespace daqiri {

/// Removes what killed recorders left in `directory`: their hidden files, and preallocated disk
/// blocks of their recorded files. The contents of recorded files do not change.
void remove_leftovers(const std::string& directory) noexcept;

/// Written in one piece when the recorded file is complete. Its disk space is allocated when that
/// file is prepared, so that the metadata can be written even to a full disk. Until then it is
/// hidden and locked: `.NAME.json.part`. Unless it is finished, it is removed with this object.
class Sidecar {
 public:
  /// Allocate `size` bytes for the metadata of the file `path`. Throws Error: INVALID_PARAMETER if
  /// another recorder has that file, GENERIC_FAILURE with path and errno.
  Sidecar(const std::string& path, std::size_t size);
  Sidecar(const Sidecar&) = delete;
  Sidecar& operator=(const Sidecar&) = delete;
  ~Sidecar();

  /// Write <path>.json completely, or throw Error without leaving it; `durable`: sync it to disk.
  void finish(const std::string& text, bool durable);

 private:
  void create();

  std::string path_;
  std::string part_path_;
  File part_;
};

}  // namespace daqiri
