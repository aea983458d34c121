/// The beginning of files of contiguous frames: all HDF5 structures except the values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "storage/frame_layout.h"

namespace daqiri {

/// Where the values of datasets begin.
struct ContiguousPlaces {
  std::array<std::uint64_t, NUM_FRAME_COLUMNS> columns{};
  /// Behind all else.
  std::uint64_t frames{0};
};

/// Bytes of it.
inline constexpr std::size_t CONTIGUOUS_STRUCTURE = std::size_t{64} << 10U;

/// Of a file with so many frames. Throws Error.
std::vector<std::byte> contiguous_structure(const FrameForm& form, const ContiguousPlaces& places,
                                            std::uint64_t frames);

/// Cut a file of `from` frames to `to`, which the HDF5 library cannot do. False: it begins in
/// another way, and is not changed. It is on disk then. Throws Error.
bool cut_contiguous(const std::string& path, const FrameForm& form, const ContiguousPlaces& places,
                    std::uint64_t from, std::uint64_t to);

}  // namespace daqiri
