/// The beginning of files of contiguous frames: all HDF5 structures except the values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "storage/frame_layout.h"

namespace daqiri {

/// Offsets of the values of the datasets.
struct ContiguousPlaces {
  std::array<std::uint64_t, NUM_FRAME_COLUMNS> columns{};
  /// After all other data.
  std::uint64_t frames{0};
};

/// Size of the structure, in bytes.
inline constexpr std::size_t CONTIGUOUS_STRUCTURE = std::size_t{64} << 10U;

/// The structure of a file with this many frames. Throws Error.
std::vector<std::byte> contiguous_structure(const FrameForm& form, const ContiguousPlaces& places,
                                            std::uint64_t frames);

/// Cut a file of `from` frames to `to`, which the HDF5 library cannot do. Returns false, without a
/// change, if its structure is different. Otherwise the change is on disk. Throws Error.
bool cut_contiguous(const std::string& path, const FrameForm& form, const ContiguousPlaces& places,
                    std::uint64_t from, std::uint64_t to);

}  // namespace daqiri
