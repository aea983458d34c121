/// The layout of files of frames (NeXus).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daqiri/reorder.h"
#include "storage/hdf5_file.h"

namespace daqiri {

/// Action in error messages.
inline constexpr const char* LAY_OUT = "lay out an HDF5 file";

/// The frames of a reorder plan.
struct FrameForm {
  /// Throws Error INVALID_PARAMETER for a plan whose frames have no shape.
  FrameForm(const ReorderConfig& config, std::uint32_t units_of_frame);

  std::string plan;
  std::vector<hsize_t> shape;
  /// Name in numpy.
  std::string dtype;
  std::uint32_t bytes;
  /// Number of validity bits per frame.
  std::uint32_t units;
  /// Elements of frames of which no packet came: these bytes, repeated.
  std::vector<std::byte> fill{std::byte{0}};
  /// Number of batch numbers.
  std::uint64_t numbers{std::uint64_t{1} << 32U};
  /// Names of the columns with numbers that are computed from each frame.
  std::vector<std::string> reductions{};

  /// Number of columns: those of every file, then the reductions.
  [[nodiscard]] std::size_t columns() const noexcept;

  [[nodiscard]] std::uint32_t valid_bytes() const noexcept { return (units + 7) / 8; }
  /// The type of the elements. Throws Error.
  [[nodiscard]] hdf5::Handle type() const;
};

/// The datasets with information about each frame.
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

/// Bytes per frame in a column.
std::uint32_t width_of(std::size_t column, const FrameForm& form) noexcept;
const char* name_of(FrameColumn column) noexcept;
const char* name_of(std::size_t column, const FrameForm& form) noexcept;
/// Throws Error INVALID_PARAMETER if reductions cannot have these names.
void require_reduction_names(const std::vector<std::string>& names);

/// Attribute of the datasets of reductions, with the name of the dataset that they are made of.
inline constexpr const char* REDUCED_FROM = "reduced_from";

/// Path of a plan's group of datasets in a file.
std::string detector_of(const FrameForm& form);

/// Sets how a dataset is stored, in its creation properties. Called before each dataset is made,
/// first for the columns, then without one for the frames.
using FrameStorage = std::function<void(std::optional<std::size_t> column, hid_t properties)>;

/// Makes the groups, and empty datasets that grow. Throws Error.
void make_frame_layout(hid_t file, const FrameForm& form, const FrameStorage& storage);
/// Write when the file's first frame arrived, ns since the epoch; 0: there is none. Returns false
/// on error.
[[nodiscard]] bool write_start_time(hid_t file, std::uint64_t time);

}  // namespace daqiri
