/// Examines and repairs files of frames, for example after the writer was killed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace daqiri {

/// What a file of frames holds.
struct FoundFrames {
  std::string plan;
  /// "contiguous", "chunked"
  std::string layout;
  /// "none", "bitshuffle-lz4", or the numbers of other filters.
  std::string compression;
  /// As numpy names it; empty: it has no such type.
  std::string dtype;
  /// Of a frame.
  std::vector<std::uint64_t> shape;
  std::uint64_t frame_bytes{0};
  /// It says that somebody writes it.
  bool marked{false};
  /// Bytes at its end are missing.
  bool cut_off{false};
  /// Of each dataset, how many frames it is long.
  std::vector<std::pair<std::string, std::uint64_t>> lengths;
  /// Up to the last one that all datasets have whole, and how many before it have no packet.
  std::uint64_t frames{0};
  std::uint64_t empty{0};
  std::uint64_t packets{0};
  std::uint64_t missing{0};
  /// Times of the first and the last packet, ns; -1: none.
  std::int64_t t_first_ns{-1};
  std::int64_t t_last_ns{-1};
};

// The HDF5 library may crash, or never come back, on a file that is broken in other ways: call
// these in a process of their own.

/// `live`: somebody writes the file now. Throws Error INVALID_PARAMETER, with the path, for a file
/// without frames in it, or one that HDF5 cannot read.
FoundFrames examine_frames(const std::string& path, bool live);

/// Cut all datasets to `frames` frames and forget the mark, so that anybody opens the file. It is
/// on disk then. Throws Error likewise.
void cut_frames(const std::string& path, std::uint64_t frames);

}  // namespace daqiri
