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
#include "storage/run_metadata.h"

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
  /// All bits of batch numbers, and the difference of consecutive ones.
  std::uint64_t batch_mask{UINT64_MAX};
  std::uint64_t batch_step{1};
  /// Columns with numbers from packets.
  std::vector<ReorderColumnConfig> plan_columns{};
  /// Names of the columns with numbers that are computed from each frame.
  std::vector<std::string> reductions{};
  /// Bits of an element in a packet; 0: not known.
  std::uint32_t bit_depth{0};
  /// The configuration of the engine, as YAML; empty: not known.
  std::string configuration{};
  /// Mode of the plan; empty: the plan as it is written.
  std::string mode{};

  /// Number of columns: those of every file, then those of the plan, then the reductions.
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
/// Values per frame in a column with a second dimension; 0: it has none.
std::uint32_t extent_of(std::size_t column, const FrameForm& form) noexcept;
const char* name_of(FrameColumn column) noexcept;
const char* name_of(std::size_t column, const FrameForm& form) noexcept;
/// Throws Error INVALID_PARAMETER if reductions beside these columns of a plan cannot have these
/// names.
void require_reduction_names(const std::vector<std::string>& names,
                             const std::vector<ReorderColumnConfig>& plan_columns);

/// Attribute of the datasets of reductions, with the name of the dataset that they are made of.
inline constexpr const char* REDUCED_FROM = "reduced_from";
/// Attribute of the datasets of a plan's columns: the packets that they are from.
inline constexpr const char* FROM_PACKETS = "from_packets";

/// Path of a plan's group of datasets in a file.
std::string detector_of(const FrameForm& form);

/// Sets how a dataset is stored, in its creation properties. Called before each dataset is made,
/// first for the columns, then without one for the frames.
using FrameStorage = std::function<void(std::optional<std::size_t> column, hid_t properties)>;

/// Makes the groups, and empty datasets that grow. `metadata`: empty: nothing is reported about a
/// run; if it does not name one, values of its run have space. Throws Error.
void make_frame_layout(hid_t file, const FrameForm& form, const RunMetadata& metadata,
                       const FrameStorage& storage);
/// Write values of a run that have space. Texts are cut to it. Returns false on error.
[[nodiscard]] bool write_run(hid_t file, const RunMetadata& metadata);

/// Names of times of a file: arrival of its first and of its last packet.
inline constexpr const char* START_TIME = "start_time";
inline constexpr const char* END_TIME = "end_time";
/// Write a time, ns since the epoch; 0: there is none. Returns false on error.
[[nodiscard]] bool write_time(hid_t file, const char* name, std::uint64_t time);

}  // namespace daqiri
