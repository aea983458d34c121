#include "storage/frame_layout.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <limits>

#include "config/formats.h"
#include "daqiri/version.h"
#include "reorder/convert.h"
#include "reorder/plan.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

using hdf5::Handle;
using hdf5::require;

constexpr std::array<const char*, NUM_FRAME_COLUMNS> NAMES{
    "batch", "timestamp", "last_timestamp", "packets", "missing", "timed_out", "lossy", "valid"};
constexpr const char* FRAMES = "data";
/// Name of the batch numbers in NeXus.
constexpr const char* SEQUENCE_NUMBER = "sequence_number";

void set_attribute(hid_t object, const char* name, hid_t type, hid_t space, const void* value) {
  const Handle attribute(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                         LAY_OUT);
  require(H5Awrite(attribute, type, value) >= 0, LAY_OUT);
}

Handle text_type() {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, LAY_OUT);
  require(H5Tset_size(type, H5T_VARIABLE) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0, LAY_OUT);
  return type;
}

void set_text(hid_t object, const char* name, const char* text) {
  const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose, LAY_OUT);
  set_attribute(object, name, text_type(), scalar, static_cast<const void*>(&text));
}

/// The first axis of frames is the time of their first packets; the others have no values.
void set_axes(hid_t plot, std::size_t axes) {
  std::vector<const char*> names(axes, ".");
  names.front() = name_of(FrameColumn::TIMESTAMP);
  const hsize_t extent = axes;
  const Handle list(H5Screate_simple(1, &extent, nullptr), H5Sclose, LAY_OUT);
  set_attribute(plot, "axes", text_type(), list, static_cast<const void*>(names.data()));
  const std::int32_t first = 0;
  const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose, LAY_OUT);
  set_attribute(plot, "timestamp_indices", H5T_NATIVE_INT32, scalar, &first);
}

Handle make_group(hid_t parent, const std::string& name, const char* kind) {
  // Creation times would differ from file to file.
  const Handle properties(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, LAY_OUT);
  require(H5Pset_obj_track_times(properties, false) >= 0, LAY_OUT);
  Handle group(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, properties, H5P_DEFAULT), H5Gclose,
               LAY_OUT);
  set_text(group, "NX_class", kind);
  return group;
}

constexpr std::size_t TIME_LENGTH = sizeof "1970-01-01T00:00:00.000000000Z" - 1;
/// Text of a run in its file; the metadata file has all of it.
constexpr std::size_t LONGEST_TEXT = 4096;
constexpr std::int64_t NO_NUMBER = -1;

std::string time_text(std::uint64_t time) {
  constexpr std::uint64_t SECOND = 1'000'000'000;
  const auto seconds = static_cast<std::time_t>(time / SECOND);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 64> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + length, text.size() - length, ".%09uZ",
                static_cast<unsigned>(time % SECOND));
  return text.data();
}

/// Of fixed length, so that it can be written later.
Handle time_type() {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, LAY_OUT);
  require(H5Tset_size(type, TIME_LENGTH) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0,
          LAY_OUT);
  return type;
}

/// As `time_type`; `bytes` includes the final zero.
Handle fixed_text_type(std::size_t bytes) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, LAY_OUT);
  require(H5Tset_size(type, bytes) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0, LAY_OUT);
  return type;
}

/// At most `most` bytes of a text, whole characters of UTF-8.
std::string_view cut_text(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0U) == 0x80U) --most;
  return text.substr(0, most);
}

/// A dataset of one value, which is stored in its header: HDF5 replaces it at once.
Handle make_scalar(hid_t parent, const char* name, hid_t type, const void* value = nullptr) {
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, LAY_OUT);
  require(
      H5Pset_obj_track_times(properties, false) >= 0 && H5Pset_layout(properties, H5D_COMPACT) >= 0,
      LAY_OUT);
  const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose, LAY_OUT);
  Handle dataset(H5Dcreate2(parent, name, type, scalar, H5P_DEFAULT, properties, H5P_DEFAULT),
                 H5Dclose, LAY_OUT);
  if (value != nullptr)
    require(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0, LAY_OUT);
  return dataset;
}

Handle make_text(hid_t parent, const char* name, std::string_view text, std::size_t least = 0) {
  std::string padded(cut_text(text, LONGEST_TEXT));
  padded.resize(std::max(padded.size(), least) + 1);
  return make_scalar(parent, name, fixed_text_type(padded.size()), padded.data());
}

/// A text of any length, as a dataset that is never changed.
void make_long_text(hid_t parent, const char* name, const std::string& text) {
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, LAY_OUT);
  require(H5Pset_obj_track_times(properties, false) >= 0 &&
              H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY) >= 0 &&
              H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER) >= 0,
          LAY_OUT);
  const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose, LAY_OUT);
  const Handle type = fixed_text_type(text.size() + 1);
  const Handle dataset(H5Dcreate2(parent, name, type, scalar, H5P_DEFAULT, properties, H5P_DEFAULT),
                       H5Dclose, LAY_OUT);
  require(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.c_str()) >= 0, LAY_OUT);
}

void make_value(hid_t parent, const RunField& field, const std::string& value, bool reserve) {
  switch (field.value) {
    case RunValue::TEXT:
      make_text(parent, field.name, value, reserve ? field.reserved : 0);
      return;
    case RunValue::INTEGER: {
      const std::int64_t number = value.empty() ? NO_NUMBER : std::stoll(value);
      make_scalar(parent, field.name, H5T_STD_I64LE, &number);
      return;
    }
    case RunValue::NUMBER: {
      const double number = std::stod(value);
      set_text(make_scalar(parent, field.name, H5T_IEEE_F64LE, &number), "units", field.units);
      return;
    }
  }
}

/// Make the values of the run, or those of the detector, in their groups.
void make_values(hid_t parent, const RunMetadata& metadata, bool of_run) {
  const bool reserve = of_run && !metadata.empty() && !names_run(metadata);
  Handle run;
  for (const RunField& field : run_fields()) {
    const std::string value(value_of(metadata, field.key));
    if (field.of_run != of_run || (value.empty() && !reserve)) continue;
    const std::string_view group = field.group;
    if (group.empty()) {
      make_value(parent, field, value, reserve);
    } else if (group == "run") {
      if (!run.is_open()) run = make_group(parent, "run", "NXcollection");
      make_value(run, field, value, reserve);
    } else {
      make_value(make_group(parent, field.group, "NXsample"), field, value, reserve);
    }
  }
}

void make_configuration(hid_t entry, const std::string& text, const std::string& mode) {
  if (text.empty()) return;
  const Handle note = make_group(entry, "configuration", "NXnote");
  make_text(note, "type", "application/yaml");
  make_text(note, "description", "Configuration of the engine when the recording began");
  make_long_text(note, "data", text);
  if (!mode.empty()) make_text(note, "mode", mode);
}

/// The column of a plan; null: it is another column.
const ReorderColumnConfig* plan_column(std::size_t column, const FrameForm& form) noexcept {
  const std::size_t at = column - NUM_FRAME_COLUMNS;
  return column >= NUM_FRAME_COLUMNS && at < form.plan_columns.size() ? &form.plan_columns[at]
                                                                      : nullptr;
}

hid_t type_of(std::size_t column, const FrameForm& form) noexcept {
  if (plan_column(column, form) != nullptr) return H5T_STD_U64LE;
  if (column >= NUM_FRAME_COLUMNS) return H5T_IEEE_F64LE;
  switch (static_cast<FrameColumn>(column)) {
    case FrameColumn::BATCH:
      return H5T_STD_U64LE;
    case FrameColumn::TIMESTAMP:
    case FrameColumn::LAST_TIMESTAMP:
      return H5T_STD_I64LE;
    case FrameColumn::TIMED_OUT:
    case FrameColumn::VALID:
      return H5T_STD_U8LE;
    default:
      return H5T_STD_U32LE;
  }
}

/// The type that h5py reads as bool.
Handle truth_type() {
  Handle type(H5Tenum_create(H5T_STD_I8LE), H5Tclose, LAY_OUT);
  for (const std::int8_t value : {0, 1})
    require(H5Tenum_insert(type, value == 0 ? "FALSE" : "TRUE", &value) >= 0, LAY_OUT);
  return type;
}

/// Element type of a plan's output in numpy. numpy has no bf16: its bits are stored.
std::string output_dtype(ReorderDataType type) {
  switch (type) {
    case ReorderDataType::FP16:
      return "float16";
    case ReorderDataType::BF16:
      return "uint16";
    case ReorderDataType::FP32:
      return "float32";
    case ReorderDataType::FP64:
      return "float64";
    case ReorderDataType::SAME:
      return "uint8";
    default:
      return reorder_data_type_to_string(type);
  }
}

/// Bits of an element of a packet; 0: packets have other elements than frames.
std::uint32_t bit_depth_of(const ReorderConfig& config, const std::string& dtype) {
  const ReorderDataType input = config.data_types_.input_type_;
  if (input != ReorderDataType::SAME) return reorder::bits_of(input);
  const std::size_t digits = dtype.find_first_of("0123456789");
  return digits == std::string::npos ? 0
                                     : static_cast<std::uint32_t>(std::stoul(dtype.substr(digits)));
}

void describe_dataset(hid_t dataset, std::optional<std::size_t> column, const FrameForm& form) {
  if (!column) {
    set_text(dataset, "units", "counts");
    set_text(dataset, "long_name", form.plan.c_str());
    return;
  }
  if (*column >= NUM_FRAME_COLUMNS) {
    if (extent_of(*column, form) > 0)
      set_text(dataset, "description",
               "number i of a row: from packet i of the frame; 0 if it has not arrived, see valid");
    return;
  }
  switch (static_cast<FrameColumn>(*column)) {
    case FrameColumn::TIMESTAMP:
      return set_text(dataset, "long_name", "arrival of the first packet (ns since 1970, UTC)");
    case FrameColumn::LAST_TIMESTAMP:
      return set_text(dataset, "long_name", "arrival of the last packet (ns since 1970, UTC)");
    case FrameColumn::VALID:
      return set_text(dataset, "description",
                      "bit i of a row, from the least significant bit of its first byte: packet i "
                      "of the frame has arrived");
    default:
      return;
  }
}

}  // namespace

FrameForm::FrameForm(const ReorderConfig& config, std::uint32_t units_of_frame)
    : plan(config.name_),
      shape(config.frame_.shape_.begin(), config.frame_.shape_.end()),
      dtype(config.frame_.dtype_.empty() ? output_dtype(config.data_types_.output_type_)
                                         : config.frame_.dtype_),
      bytes(static_cast<std::uint32_t>(reorder::frame_bytes_of(config))),
      units(units_of_frame),
      plan_columns(config.columns_),
      bit_depth(bit_depth_of(config, dtype)) {
  // A slash would name another group.
  std::ranges::replace(plan, '/', '_');
  if (shape.empty()) {
    throw Error(Status::INVALID_PARAMETER,
                "frames of reorder plan '" + config.name_ +
                    "' have no shape, which a file needs; give the plan a 'frame: "
                    "shape'");
  }
}

Handle FrameForm::type() const {
  hdf5::enter();
  static constexpr std::array<const char*, 11> NUMPY{"int8",    "uint8",   "int16",  "uint16",
                                                     "int32",   "uint32",  "int64",  "uint64",
                                                     "float16", "float32", "float64"};
  const std::array<hid_t, 11> types{H5T_STD_I8LE,   H5T_STD_U8LE,   H5T_STD_I16LE, H5T_STD_U16LE,
                                    H5T_STD_I32LE,  H5T_STD_U32LE,  H5T_STD_I64LE, H5T_STD_U64LE,
                                    H5T_IEEE_F32LE, H5T_IEEE_F32LE, H5T_IEEE_F64LE};
  const auto* const found =
      std::ranges::find_if(NUMPY, [this](const char* name) { return dtype == name; });
  if (found == NUMPY.end())
    throw Error(Status::INVALID_PARAMETER, "frames have no elements of type '" + dtype + "'");
  Handle type(H5Tcopy(types.at(static_cast<std::size_t>(found - NUMPY.begin()))), H5Tclose,
              LAY_OUT);
  if (dtype == "float16") {
    require(H5Tset_fields(type, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(type, 2) >= 0 &&
                H5Tset_ebias(type, 15) >= 0,
            LAY_OUT);
  }
  return type;
}

std::size_t FrameForm::columns() const noexcept {
  return NUM_FRAME_COLUMNS + plan_columns.size() + reductions.size();
}

std::uint32_t width_of(std::size_t column, const FrameForm& form) noexcept {
  static_assert(sizeof(double) == sizeof(std::uint64_t));
  if (column >= NUM_FRAME_COLUMNS)
    return std::max(extent_of(column, form), 1U) * std::uint32_t{sizeof(double)};
  switch (static_cast<FrameColumn>(column)) {
    case FrameColumn::BATCH:
    case FrameColumn::TIMESTAMP:
    case FrameColumn::LAST_TIMESTAMP:
      return 8;
    case FrameColumn::TIMED_OUT:
    case FrameColumn::LOSSY:
      return 1;
    case FrameColumn::VALID:
      return form.valid_bytes();
    default:
      return 4;
  }
}

std::uint32_t extent_of(std::size_t column, const FrameForm& form) noexcept {
  if (column == static_cast<std::size_t>(FrameColumn::VALID)) return form.valid_bytes();
  const ReorderColumnConfig* const of_plan = plan_column(column, form);
  return of_plan != nullptr && of_plan->from_ == ReorderColumnSource::PACKETS ? form.units : 0;
}

const char* name_of(FrameColumn column) noexcept { return NAMES[static_cast<std::size_t>(column)]; }

const char* name_of(std::size_t column, const FrameForm& form) noexcept {
  if (column < NUM_FRAME_COLUMNS) return NAMES[column];
  if (const ReorderColumnConfig* of_plan = plan_column(column, form)) return of_plan->name_.c_str();
  return form.reductions[column - NUM_FRAME_COLUMNS - form.plan_columns.size()].c_str();
}

void require_reduction_names(const std::vector<std::string>& names,
                             const std::vector<ReorderColumnConfig>& plan_columns) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    const bool taken =
        *name == FRAMES || *name == SEQUENCE_NUMBER ||
        std::ranges::find(NAMES, *name) != NAMES.end() ||
        std::ranges::find(plan_columns, *name, &ReorderColumnConfig::name_) != plan_columns.end() ||
        std::find(names.begin(), name, *name) != name;
    constexpr std::size_t LONGEST = 200;
    if (!taken && !name->empty() && *name != "." && name->size() <= LONGEST &&
        name->find('/') == std::string::npos)
      continue;
    throw Error(
        Status::INVALID_PARAMETER,
        "a reduction of frames is named '" + *name +
            "'; accepted is a name of up to 200 bytes without '/' that no other dataset of a "
            "file of frames has, such as 'total'");
  }
}

std::string detector_of(const FrameForm& form) { return "/entry/instrument/" + form.plan; }

void make_frame_layout(hid_t file, const FrameForm& form, const RunMetadata& metadata,
                       const FrameStorage& storage) {
  const Handle root(H5Gopen2(file, "/", H5P_DEFAULT), H5Gclose, LAY_OUT);
  set_text(root, "NX_class", "NXroot");
  set_text(root, "default", "entry");
  set_text(root, "creator", "daqiri-ophyd");
  set_text(root, "creator_version", DAQIRI_VERSION);
  set_text(root, "file_time", time_text(realtime_ns()).c_str());
  const Handle entry = make_group(root, "entry", "NXentry");
  set_text(entry, "default", "data");
  make_scalar(entry, START_TIME, time_type());
  make_scalar(entry, END_TIME, time_type());
  set_text(make_text(entry, "program_name", "daqiri-ophyd"), "version", DAQIRI_VERSION);
  make_values(entry, metadata, true);
  make_configuration(entry, form.configuration, form.mode);
  const Handle instrument = make_group(entry, "instrument", "NXinstrument");
  const Handle detector = make_group(instrument, form.plan, "NXdetector");
  make_text(detector, "description", "frames of reorder plan " + form.plan);
  make_values(detector, metadata, false);
  if (form.bit_depth > 0) {
    const auto bits = static_cast<std::int64_t>(form.bit_depth);
    make_scalar(detector, "bit_depth_readout", H5T_STD_I64LE, &bits);
  }
  const Handle plot = make_group(entry, "data", "NXdata");
  set_text(plot, "signal", "data");
  set_axes(plot, 1 + form.shape.size());

  const auto make = [&](const char* name, hid_t type, std::vector<hsize_t> extents,
                        std::optional<std::size_t> column) {
    std::vector<hsize_t> most = extents;
    most.front() = H5S_UNLIMITED;
    const Handle space(
        H5Screate_simple(static_cast<int>(extents.size()), extents.data(), most.data()), H5Sclose,
        LAY_OUT);
    const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, LAY_OUT);
    require(H5Pset_obj_track_times(properties, false) >= 0, LAY_OUT);
    if (!column) {
      std::vector<std::byte> element(H5Tget_size(type));
      for (std::size_t i = 0; i < element.size(); ++i) element[i] = form.fill[i % form.fill.size()];
      require(H5Pset_fill_value(properties, type, element.data()) >= 0 &&
                  H5Pset_fill_time(properties, H5D_FILL_TIME_IFSET) >= 0,
              LAY_OUT);
    } else {
      require(H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER) >= 0, LAY_OUT);
    }
    storage(column, properties);
    const Handle dataset(
        H5Dcreate2(detector, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose,
        LAY_OUT);
    if (column && type_of(*column, form) == H5T_STD_I64LE) {
      set_text(dataset, "units", "ns");
      set_text(dataset, "start", "1970-01-01T00:00:00Z");
    }
    if (const ReorderColumnConfig* of_plan = column ? plan_column(*column, form) : nullptr) {
      set_text(dataset, FROM_PACKETS,
               config::text_of(config::COLUMN_SOURCES, of_plan->from_).c_str());
    } else if (column && *column >= NUM_FRAME_COLUMNS) {
      set_text(dataset, REDUCED_FROM, FRAMES);
    }
    describe_dataset(dataset, column, form);
    require(H5Lcreate_hard(detector, name, plot, name, H5P_DEFAULT, H5P_DEFAULT) >= 0, LAY_OUT);
  };
  for (std::size_t c = 0; c < form.columns(); ++c) {
    const auto column = static_cast<FrameColumn>(c);
    std::vector<hsize_t> extents{0};
    if (const std::uint32_t extent = extent_of(c, form); extent > 0) extents.push_back(extent);
    if (column == FrameColumn::LOSSY) {
      make(name_of(c, form), truth_type(), extents, c);
    } else {
      make(name_of(c, form), type_of(c, form), extents, c);
    }
  }
  require(H5Lcreate_hard(detector, name_of(FrameColumn::BATCH), detector, SEQUENCE_NUMBER,
                         H5P_DEFAULT, H5P_DEFAULT) >= 0,
          LAY_OUT);
  std::vector<hsize_t> extents{0};
  extents.insert(extents.end(), form.shape.begin(), form.shape.end());
  make(FRAMES, form.type(), extents, std::nullopt);
}

bool write_run(hid_t file, const RunMetadata& metadata) {
  for (const RunField& field : run_fields()) {
    const std::string_view value = value_of(metadata, field.key);
    if (!field.of_run || value.empty()) continue;
    const std::string path = "/entry/" + field.path();
    const Handle dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, LAY_OUT);
    if (field.value == RunValue::INTEGER) {
      const std::int64_t number = std::stoll(std::string(value));
      if (H5Dwrite(dataset, H5T_STD_I64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &number) < 0)
        return false;
    } else {
      const Handle type(H5Dget_type(dataset), H5Tclose, LAY_OUT);
      const std::size_t bytes = H5Tget_size(type);
      std::string padded(cut_text(value, bytes - 1));
      padded.resize(bytes);
      if (H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, padded.data()) < 0) return false;
    }
    if (H5Dflush(dataset) < 0) return false;
  }
  return true;
}

bool write_time(hid_t file, const char* name, std::uint64_t time) {
  std::string text = time == 0 ? std::string() : time_text(time);
  text.resize(TIME_LENGTH);
  const Handle entry(H5Gopen2(file, "entry", H5P_DEFAULT), H5Gclose, LAY_OUT);
  const Handle dataset(H5Dopen2(entry, name, H5P_DEFAULT), H5Dclose, LAY_OUT);
  return H5Dwrite(dataset, time_type(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) >= 0 &&
         H5Dflush(dataset) >= 0;
}

}  // namespace daqiri
