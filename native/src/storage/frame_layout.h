/// The layout of files of frames (NeXus).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daqiri/reorder.h"
#include "storage/hdf5_file.h"

namespace daqiri {

/// For errors.
inline constexpr const char* LAY_OUT = "lay out an HDF5 file";

/// The frames of a reorder plan.
struct FrameForm {
  /// Throws Error INVALID_PARAMETER for a plan whose frames have no shape.
  FrameForm(const ReorderConfig& config, std::uint32_t units_of_frame);

  std::string plan;
  std::vector<hsize_t> shape;
  /// As numpy names it.
  std::string dtype;
  std::uint32_t bytes;
  /// What validity is told of.
  std::uint32_t units;

  [[nodiscard]] std::uint32_t valid_bytes() const noexcept { return (units + 7) / 8; }
  /// The type of elements. Throws Error.
  [[nodiscard]] hdf5::Handle type() const;
};

/// What is told beside each frame: a dataset each.
enum class FrameColumn : std::uint8_t {
  BATCH,
  TIMESTAMP,
  LAST_TIMESTAMP,
  PACKETS,
  MISSING,
  TIMED_OUT,
  LOSSY,
  VALID,
};
inline constexpr std::size_t NUM_FRAME_COLUMNS = 8;

/// Bytes of a frame in a column.
std::uint32_t width_of(FrameColumn column, const FrameForm& form) noexcept;
const char* name_of(FrameColumn column) noexcept;

/// Where a plan's datasets are in a file.
std::string detector_of(const FrameForm& form);

/// How a dataset of `row` bytes for a frame is stored: set in its creation properties. Called right
/// before it is made, the columns first, null: the frames themselves.
using FrameStorage = std::function<void(const FrameColumn* column, hid_t properties)>;

/// Groups and datasets of `frames` frames; `grows`: there can be more. Throws Error.
void make_frame_layout(hid_t file, const FrameForm& form, std::uint64_t frames, bool grows,
                       const FrameStorage& storage);

}  // namespace daqiri
