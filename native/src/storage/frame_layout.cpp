#include "storage/frame_layout.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "reorder/plan.h"

namespace daqiri {

namespace {

using hdf5::Handle;
using hdf5::require;

constexpr std::array<const char*, NUM_FRAME_COLUMNS> NAMES{
    "batch", "timestamp", "last_timestamp", "packets", "missing", "timed_out", "lossy", "valid"};
constexpr const char* FRAMES = "data";

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

constexpr const char* START_TIME = "start_time";
constexpr std::size_t TIME_LENGTH = sizeof "1970-01-01T00:00:00.000000000Z" - 1;

/// Of fixed length, so that it can be written later.
Handle time_type() {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, LAY_OUT);
  require(H5Tset_size(type, TIME_LENGTH) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0,
          LAY_OUT);
  return type;
}

void make_start_time(hid_t entry) {
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, LAY_OUT);
  require(
      H5Pset_obj_track_times(properties, false) >= 0 && H5Pset_layout(properties, H5D_COMPACT) >= 0,
      LAY_OUT);
  const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose, LAY_OUT);
  const Handle time(
      H5Dcreate2(entry, START_TIME, time_type(), scalar, H5P_DEFAULT, properties, H5P_DEFAULT),
      H5Dclose, LAY_OUT);
}

hid_t type_of(std::size_t column) noexcept {
  if (column >= NUM_FRAME_COLUMNS) return H5T_IEEE_F64LE;
  switch (static_cast<FrameColumn>(column)) {
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
    case ReorderDataType::INT4:
      return "uint8";
    default:
      return reorder_data_type_to_string(type);
  }
}

}  // namespace

FrameForm::FrameForm(const ReorderConfig& config, std::uint32_t units_of_frame)
    : plan(config.name_),
      shape(config.frame_.shape_.begin(), config.frame_.shape_.end()),
      dtype(config.frame_.dtype_.empty() ? output_dtype(config.data_types_.output_type_)
                                         : config.frame_.dtype_),
      bytes(static_cast<std::uint32_t>(reorder::frame_bytes_of(config))),
      units(units_of_frame) {
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

std::size_t FrameForm::columns() const noexcept { return NUM_FRAME_COLUMNS + reductions.size(); }

std::uint32_t width_of(std::size_t column, const FrameForm& form) noexcept {
  if (column >= NUM_FRAME_COLUMNS) return sizeof(double);
  switch (static_cast<FrameColumn>(column)) {
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

const char* name_of(FrameColumn column) noexcept { return NAMES[static_cast<std::size_t>(column)]; }

const char* name_of(std::size_t column, const FrameForm& form) noexcept {
  if (column < NUM_FRAME_COLUMNS) return NAMES[column];
  return form.reductions[column - NUM_FRAME_COLUMNS].c_str();
}

void require_reduction_names(const std::vector<std::string>& names) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    const bool taken = *name == FRAMES || std::ranges::find(NAMES, *name) != NAMES.end() ||
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

void make_frame_layout(hid_t file, const FrameForm& form, const FrameStorage& storage) {
  const Handle root(H5Gopen2(file, "/", H5P_DEFAULT), H5Gclose, LAY_OUT);
  set_text(root, "NX_class", "NXroot");
  set_text(root, "default", "entry");
  const Handle entry = make_group(root, "entry", "NXentry");
  set_text(entry, "default", "data");
  make_start_time(entry);
  const Handle instrument = make_group(entry, "instrument", "NXinstrument");
  const Handle detector = make_group(instrument, form.plan, "NXdetector");
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
    if (column && type_of(*column) == H5T_STD_I64LE) {
      set_text(dataset, "units", "ns");
      set_text(dataset, "start", "1970-01-01T00:00:00Z");
    }
    if (column && *column >= NUM_FRAME_COLUMNS) set_text(dataset, REDUCED_FROM, FRAMES);
    require(H5Lcreate_hard(detector, name, plot, name, H5P_DEFAULT, H5P_DEFAULT) >= 0, LAY_OUT);
  };
  for (std::size_t c = 0; c < form.columns(); ++c) {
    const auto column = static_cast<FrameColumn>(c);
    std::vector<hsize_t> extents{0};
    if (column == FrameColumn::VALID) extents.push_back(form.valid_bytes());
    if (column == FrameColumn::LOSSY) {
      make(name_of(c, form), truth_type(), extents, c);
    } else {
      make(name_of(c, form), type_of(c), extents, c);
    }
  }
  std::vector<hsize_t> extents{0};
  extents.insert(extents.end(), form.shape.begin(), form.shape.end());
  make(FRAMES, form.type(), extents, std::nullopt);
}

bool write_start_time(hid_t file, std::uint64_t time) {
  constexpr std::uint64_t SECOND = 1'000'000'000;
  const auto seconds = static_cast<std::time_t>(time / SECOND);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64] = {};
  if (time != 0) {
    const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    std::snprintf(text + length, sizeof text - length, ".%09uZ",
                  static_cast<unsigned>(time % SECOND));
  }
  const Handle entry(H5Gopen2(file, "entry", H5P_DEFAULT), H5Gclose, LAY_OUT);
  const Handle dataset(H5Dopen2(entry, START_TIME, H5P_DEFAULT), H5Dclose, LAY_OUT);
  return H5Dwrite(dataset, time_type(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text) >= 0 &&
         H5Dflush(dataset) >= 0;
}

}  // namespace daqiri
