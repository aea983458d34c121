/// Examines and repairs files of frames, for example after the writer was killed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "storage/run_metadata.h"

namespace daqiri {

/// Contents of a file of frames.
struct FoundFrames {
  std::string plan;
  /// "chunked"; "contiguous": written by an earlier version or another program.
  std::string layout;
  /// "none", "bitshuffle-lz4", or the numbers of other filters.
  std::string compression;
  /// Name in numpy; empty: numpy has no such type.
  std::string dtype;
  /// Shape of a frame.
  std::vector<std::uint64_t> shape;
  std::uint64_t frame_bytes{0};
  /// Whether the file is marked as being written.
  bool marked{false};
  /// Whether bytes are missing at its end.
  bool cut_off{false};
  /// Each dataset with its number of frames.
  std::vector<std::pair<std::string, std::uint64_t>> lengths;
  /// Number of frames up to the last one that is complete in all datasets, and of those without
  /// packets.
  std::uint64_t frames{0};
  std::uint64_t empty{0};
  std::uint64_t packets{0};
  std::uint64_t missing{0};
  /// Times of the first and the last packet, ns; -1: none.
  std::int64_t t_first_ns{-1};
  std::int64_t t_last_ns{-1};
  /// Run and detector, as far as it has them, and the configuration of its engine as YAML.
  RunMetadata metadata;
  std::string configuration;
  /// Mode of its plan in that configuration.
  std::string mode;
};

// The HDF5 library may crash or hang on files that are damaged in other ways: call these functions
// in a separate process.

/// `live`: a recorder is writing the file. Throws Error INVALID_PARAMETER, with the path, for a
/// file without frames, or one that HDF5 cannot read.
FoundFrames examine_frames(const std::string& path, bool live);

/// Cut all datasets to `frames` frames, clear the mark, so that any program can open the file, and
/// sync it to disk. `plugin_folder`: as in RecorderOptions, for compressed frames. Throws the same
/// errors.
void cut_frames(const std::string& path, std::uint64_t frames, const std::string& plugin_folder);

}  // namespace daqiri
