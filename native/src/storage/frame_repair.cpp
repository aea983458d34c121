#include "storage/frame_repair.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "storage/frame_compression.h"
#include "storage/frame_layout.h"
#include "storage/hdf5_file.h"
#include "system/file.h"

namespace daqiri {

namespace {

using hdf5::Handle;

constexpr const char* READ = "read it";
constexpr const char* INSTRUMENT = "/entry/instrument";
/// Most dimensions of a frame, including the number of frames.
constexpr int MOST_DIMENSIONS = H5S_MAX_RANK;
/// Attempts to read a part that a writer may be writing; the library doubles the wait before each,
/// starting at 1 ns.
constexpr unsigned ATTEMPTS = 25;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Status::INVALID_PARAMETER, path + " is not a file of frames: " + why);
}

/// Flags of the superblock: whether a writer has the file open, and whether it supports concurrent
/// readers (SWMR).
struct Mark {
  bool writing{false};
  bool shared{false};
};

Mark mark_of(const File& file, const std::string& path) {
  static constexpr std::array<unsigned char, 8> SIGNATURE{0x89, 'H',  'D',  'F',
                                                          '\r', '\n', 0x1a, '\n'};
  constexpr std::size_t VERSION = 8;
  constexpr std::size_t FLAGS = 11;
  std::array<unsigned char, 12> begin{};
  ssize_t n = 0;
  do {
    n = pread(file.fd(), begin.data(), begin.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0) throw file_error("cannot read", path, errno);
  if (n < static_cast<ssize_t>(begin.size()) ||
      !std::equal(SIGNATURE.begin(), SIGNATURE.end(), begin.begin()))
    refuse(path, "it does not have the HDF5 signature");
  if (begin[VERSION] < 3) return {};
  return {(begin[FLAGS] & 1U) != 0, (begin[FLAGS] & 4U) != 0};
}

/// Opens the file regardless of its flags.
Handle open_file(const std::string& path, unsigned flags) {
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, READ);
  hdf5::require(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 &&
                    H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST) >= 0 &&
                    H5Pset_metadata_read_attempts(access, ATTEMPTS) >= 0,
                READ);
  if (flags != (H5F_ACC_RDONLY | H5F_ACC_SWMR_READ)) {
    // Like h5clear.
    const hbool_t yes = true;
    hdf5::require(H5Pset(access, "clear_status_flags", &yes) >= 0 &&
                      H5Pset(access, "skip_eof_check", &yes) >= 0,
                  READ);
  }
  return {H5Fopen(path.c_str(), flags, access), H5Fclose, "open it"};
}

/// The datasets of the only plan in a file.
class Datasets {
 public:
  explicit Datasets(const Handle& file) {
    const Handle instrument(H5Gopen2(file, INSTRUMENT, H5P_DEFAULT), H5Gclose,
                            "find its instrument");
    H5G_info_t found{};
    hdf5::require(H5Gget_info(instrument, &found) >= 0, READ);
    if (found.nlinks != 1)
      throw Error(
          Status::INVALID_PARAMETER,
          std::string(INSTRUMENT) + " has " + std::to_string(found.nlinks) + " detectors, not one");
    const auto name = [&](char* to, std::size_t size) {
      return H5Lget_name_by_idx(instrument, ".", H5_INDEX_NAME, H5_ITER_INC, 0, to, size,
                                H5P_DEFAULT);
    };
    const ssize_t length = name(nullptr, 0);
    hdf5::require(length > 0 && length < 4096, READ);
    plan.resize(static_cast<std::size_t>(length));
    name(plan.data(), plan.size() + 1);
    detector_ = Handle(H5Gopen2(instrument, plan.c_str(), H5P_DEFAULT), H5Gclose, READ);
    for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c) add(name_of(static_cast<FrameColumn>(c)));
    add_others();
    add("data");
  }

  struct Dataset {
    std::string name;
    Handle handle;
    /// The first extent is the number of frames.
    std::vector<hsize_t> extents;
    /// Bytes per frame in memory.
    std::uint64_t width;

    [[nodiscard]] Handle creation() const { return {H5Dget_create_plist(handle), H5Pclose, READ}; }
  };
  [[nodiscard]] const Dataset& frames() const { return all.back(); }
  [[nodiscard]] const Dataset& column(FrameColumn which) const {
    return all[static_cast<std::size_t>(which)];
  }

  std::string plan;
  std::vector<Dataset> all;

 private:
  void add(const char* name) {
    const std::string action = std::string("find its dataset ") + name;
    Dataset found{
        name, Handle(H5Dopen2(detector_, name, H5P_DEFAULT), H5Dclose, action.c_str()), {}, 0};
    const Handle space(H5Dget_space(found.handle), H5Sclose, READ);
    const Handle type(H5Dget_type(found.handle), H5Tclose, READ);
    std::array<hsize_t, MOST_DIMENSIONS> extents{};
    const int n = H5Sget_simple_extent_dims(space, extents.data(), nullptr);
    hdf5::require(n >= 0, READ);
    if (n == 0)
      throw Error(Status::INVALID_PARAMETER, "its dataset " + found.name + " is a scalar");
    found.extents.assign(extents.begin(), extents.begin() + n);
    found.width = H5Tget_size(type);
    for (int i = 1; i < n; ++i) {
      if (__builtin_mul_overflow(found.width, extents[static_cast<std::size_t>(i)], &found.width))
        throw Error(Status::INVALID_PARAMETER,
                    "a frame of its dataset " + found.name + " is too large for memory");
    }
    if (found.width == 0)
      throw Error(Status::INVALID_PARAMETER, "frames of its dataset " + found.name + " are empty");
    all.push_back(std::move(found));
  }

  /// Columns of plans, and reductions.
  void add_others() {
    H5G_info_t group{};
    hdf5::require(H5Gget_info(detector_, &group) >= 0, READ);
    for (hsize_t i = 0; i < group.nlinks; ++i) {
      std::array<char, 256> name{};
      const ssize_t length = H5Lget_name_by_idx(detector_, ".", H5_INDEX_NAME, H5_ITER_INC, i,
                                                name.data(), name.size(), H5P_DEFAULT);
      const bool known = std::string_view(name.data()) == "data" ||
                         std::ranges::any_of(all, [&](const Dataset& column) {
                           return column.name == name.data();
                         });
      if (length <= 0 || length >= static_cast<ssize_t>(name.size()) || known) continue;
      if (is_own(name.data())) add(name.data());
    }
  }
  /// Whether it is a dataset of a recorder: others may add datasets of their own.
  [[nodiscard]] bool is_own(const char* name) const {
    // A link may lead nowhere, or to a group.
    const hid_t object = H5Oopen(detector_, name, H5P_DEFAULT);
    if (object < 0) return false;
    const bool found = H5Iget_type(object) == H5I_DATASET &&
                       (H5Aexists(object, REDUCED_FROM) > 0 || H5Aexists(object, FROM_PACKETS) > 0);
    H5Oclose(object);
    return found;
  }

  Handle detector_;
};

/// Values of a column, limited to those that are stored in the file.
template <typename Value>
std::vector<Value> values_of(const Datasets::Dataset& column, hid_t type, hsize_t rows) {
  rows = std::min<hsize_t>(rows, H5Dget_storage_size(column.handle) / column.width);
  std::vector<Value> values(rows);
  if (rows == 0) return values;
  if (column.extents.size() != 1)
    throw Error(Status::INVALID_PARAMETER, "its dataset " + column.name + " has " +
                                               std::to_string(column.extents.size()) +
                                               " dimensions, not one");
  const Handle memory(H5Screate_simple(1, &rows, nullptr), H5Sclose, READ);
  const Handle space(H5Dget_space(column.handle), H5Sclose, READ);
  const hsize_t first = 0;
  hdf5::require(H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, nullptr, &rows, nullptr) >= 0 &&
                    H5Dread(column.handle, type, memory, space, H5P_DEFAULT, values.data()) >= 0,
                READ);
  return values;
}

/// Whether the chunk of frame `frame` is in the file, which has `size` bytes.
bool has_chunk(const Datasets::Dataset& data, std::uint64_t frame, std::uint64_t size) {
  std::vector<hsize_t> at(data.extents.size(), 0);
  at.front() = frame;
  unsigned filters = 0;
  haddr_t address = HADDR_UNDEF;
  hsize_t bytes = 0;
  hdf5::require(H5Dget_chunk_info_by_coord(data.handle, at.data(), &filters, &address, &bytes) >= 0,
                READ);
  return address != HADDR_UNDEF && address <= size && bytes <= size - address;
}

/// Number of the first frames whose bytes are all in a file of `size` bytes; `packets` has those of
/// each. A frame without packets has no chunk.
std::uint64_t stored_frames(const Datasets::Dataset& data, H5D_layout_t layout,
                            const std::vector<std::uint64_t>& packets, std::uint64_t size) {
  std::uint64_t rows = packets.size();
  if (layout == H5D_CONTIGUOUS) {
    const haddr_t begin = H5Dget_offset(data.handle);
    if (begin == HADDR_UNDEF || begin >= size) return 0;
    return std::min(rows, (size - begin) / data.width);
  }
  std::vector<std::uint64_t> with_chunk;
  for (std::uint64_t row = 0; row < rows; ++row) {
    if (packets[row] > 0) with_chunk.push_back(row);
  }
  if (with_chunk.empty() || has_chunk(data, with_chunk.back(), size)) return rows;
  // Chunks were written in order, so search by bisection.
  return *std::ranges::partition_point(
      with_chunk, [&](std::uint64_t row) { return has_chunk(data, row, size); });
}

std::string numpy_name(hid_t type) {
  const std::string bits = std::to_string(8 * H5Tget_size(type));
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return (H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int") + bits;
    case H5T_FLOAT:
      return "float" + bits;
    default:
      return {};
  }
}

std::string compression_of(hid_t creation) {
  const int filters = H5Pget_nfilters(creation);
  if (filters <= 0) return "none";
  std::string names;
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0;
    std::size_t values = 0;
    unsigned config = 0;
    const H5Z_filter_t id = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values,
                                           nullptr, 0, nullptr, &config);
    names += (i == 0 ? "" : ", ") +
             (id == BitshuffleLz4::ID ? std::string("bitshuffle-lz4") : std::to_string(id));
  }
  return names;
}

/// Counts frames that are complete in all datasets.
void count(FoundFrames& found, const Datasets& datasets, H5D_layout_t layout, std::uint64_t size) {
  std::uint64_t rows = datasets.frames().extents.front();
  for (const Datasets::Dataset& dataset : datasets.all)
    rows = std::min<std::uint64_t>(rows, dataset.extents.front());
  const auto packets =
      values_of<std::uint64_t>(datasets.column(FrameColumn::PACKETS), H5T_NATIVE_UINT64, rows);
  const auto missing =
      values_of<std::uint64_t>(datasets.column(FrameColumn::MISSING), H5T_NATIVE_UINT64, rows);
  const auto first =
      values_of<std::int64_t>(datasets.column(FrameColumn::TIMESTAMP), H5T_NATIVE_INT64, rows);
  const auto last =
      values_of<std::int64_t>(datasets.column(FrameColumn::LAST_TIMESTAMP), H5T_NATIVE_INT64, rows);
  const auto lossy =
      values_of<std::uint8_t>(datasets.column(FrameColumn::LOSSY), H5T_NATIVE_UINT8, rows);
  rows = std::min({stored_frames(datasets.frames(), layout, packets, size), missing.size(),
                   first.size(), last.size(), lossy.size()});
  // The row of a frame that did not come is marked; one that was not written is all zeros.
  while (rows > 0 && packets[rows - 1] == 0 && lossy[rows - 1] == 0) --rows;
  found.frames = rows;
  for (std::uint64_t i = 0; i < rows; ++i) {
    found.packets += packets[i];
    found.missing += missing[i];
    found.empty += packets[i] == 0 ? 1 : 0;
    if (packets[i] == 0 && lossy[i] == 0) continue;
    if (found.t_first_ns < 0) found.t_first_ns = first[i];
    found.t_last_ns = last[i];
  }
}

/// A scalar of any file as text; empty: it has none. Never throws for what others have written.
std::string scalar_text(hid_t file, const std::string& path) {
  constexpr std::size_t MOST = std::size_t{16} << 20U;
  const hid_t id = H5Dopen2(file, path.c_str(), H5P_DEFAULT);
  if (id < 0) return {};
  const Handle dataset(id, H5Dclose, READ);
  const Handle type(H5Dget_type(dataset), H5Tclose, READ);
  const Handle space(H5Dget_space(dataset), H5Sclose, READ);
  if (H5Sget_simple_extent_npoints(space) != 1) return {};
  const auto read = [&](hid_t as, void* to) {
    return H5Dread(dataset, as, H5S_ALL, H5S_ALL, H5P_DEFAULT, to) >= 0;
  };
  switch (H5Tget_class(type)) {
    case H5T_INTEGER: {
      long long number = 0;
      return read(H5T_NATIVE_LLONG, &number) && number >= 0 ? std::to_string(number) : "";
    }
    case H5T_FLOAT: {
      double number = 0;
      std::array<char, 32> digits{};
      if (!read(H5T_NATIVE_DOUBLE, &number) || !std::isfinite(number)) return {};
      std::snprintf(digits.data(), digits.size(), "%.15g", number);
      return digits.data();
    }
    case H5T_STRING: {
      if (H5Tis_variable_str(type) > 0) {
        char* text = nullptr;
        if (!read(type, static_cast<void*>(&text)) || text == nullptr) return {};
        std::string copy(text);
        H5free_memory(text);
        return copy;
      }
      if (H5Tget_size(type) > MOST) return {};
      std::string text(H5Tget_size(type), '\0');
      if (!read(type, text.data())) return {};
      return text.substr(0, text.find('\0'));
    }
    default:
      return {};
  }
}

void read_metadata(FoundFrames& found, hid_t file) {
  const std::string detector = std::string(INSTRUMENT) + "/" + found.plan + "/";
  for (const RunField& field : run_fields()) {
    std::string text = scalar_text(file, (field.of_run ? "/entry/" : detector) + field.path());
    if (!text.empty()) found.metadata[field.key] = std::move(text);
  }
  found.configuration = scalar_text(file, "/entry/configuration/data");
  found.mode = scalar_text(file, "/entry/configuration/mode");
}

/// Write when its last packet arrived, which a killed writer could not; older files have no time.
void write_end(hid_t file, const Datasets& datasets, std::uint64_t frames) {
  const hid_t time = H5Dopen2(file, (std::string("/entry/") + END_TIME).c_str(), H5P_DEFAULT);
  if (time < 0) return;
  H5Dclose(time);
  const auto last = values_of<std::int64_t>(datasets.column(FrameColumn::LAST_TIMESTAMP),
                                            H5T_NATIVE_INT64, frames);
  hdf5::require(
      write_time(file, END_TIME, last.empty() ? 0 : static_cast<std::uint64_t>(last.back())),
      "write its end");
}

/// Throws Error if datasets are longer and cannot be cut; does not change the file.
void require_cuttable(const std::string& path, std::uint64_t frames) {
  const Handle file = open_file(path, H5F_ACC_RDONLY);
  const Datasets datasets(file);
  for (const Datasets::Dataset& dataset : datasets.all) {
    if (dataset.extents.front() != frames && H5Pget_layout(dataset.creation()) == H5D_CONTIGUOUS) {
      throw Error(Status::INVALID_PARAMETER,
                  "its dataset " + dataset.name +
                      " is contiguous, which HDF5 cannot cut; copy its first " +
                      std::to_string(frames) + " frames to another file");
    }
  }
}

struct Opened {
  File file;
  std::uint64_t size{0};
  Mark mark;
};

Opened look_at(const std::string& path) {
  hdf5::enter();
  Opened opened{File(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)), 0, {}};
  struct stat status{};
  if (!opened.file.is_open() || fstat(opened.file.fd(), &status) != 0)
    throw file_error("cannot open", path, errno);
  if (!S_ISREG(status.st_mode)) refuse(path, "it is not a regular file");
  opened.size = static_cast<std::uint64_t>(status.st_size);
  opened.mark = mark_of(opened.file, path);
  return opened;
}

/// Adds the path to errors of the library.
template <typename Work>
auto with_path(const std::string& path, Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    refuse(path, error.what());
  }
}

}  // namespace

FoundFrames examine_frames(const std::string& path, bool live) {
  const Opened opened = look_at(path);
  return with_path(path, [&] {
    FoundFrames found;
    found.marked = opened.mark.writing || opened.mark.shared;
    const bool follow = opened.mark.writing && opened.mark.shared;
    if (live && found.marked && !follow)
      throw Error(Status::INVALID_PARAMETER, "its recorder has not started writing it yet");
    const Handle file = open_file(path, H5F_ACC_RDONLY | (follow ? H5F_ACC_SWMR_READ : 0U));
    const Datasets datasets(file);
    const Datasets::Dataset& data = datasets.frames();
    const Handle creation = data.creation();
    const H5D_layout_t layout = H5Pget_layout(creation);
    if (layout == H5D_VIRTUAL)
      throw Error(Status::INVALID_PARAMETER,
                  "its frames are in other files: it is a master without its metadata file (" +
                      path.substr(path.rfind('/') + 1) + ".json)");
    if (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED)
      throw Error(Status::INVALID_PARAMETER, "its dataset data is neither contiguous nor chunked");
    found.layout = layout == H5D_CONTIGUOUS ? "contiguous" : "chunked";
    found.compression = compression_of(creation);
    found.plan = datasets.plan;
    found.dtype = numpy_name(Handle(H5Dget_type(data.handle), H5Tclose, READ));
    found.shape.assign(data.extents.begin() + 1, data.extents.end());
    found.frame_bytes = data.width;
    for (const Datasets::Dataset& dataset : datasets.all)
      found.lengths.emplace_back(dataset.name, dataset.extents.front());
    count(found, datasets, layout, opened.size);
    read_metadata(found, file);
    return found;
  });
}

void cut_frames(const std::string& path, std::uint64_t frames, const std::string& plugin_folder) {
  const Opened opened = look_at(path);
  with_path(path, [&] {
    require_cuttable(path, frames);
    Handle file = open_file(path, H5F_ACC_RDWR);
    // The end in the superblock may be older than the data after it.
    hdf5::require(H5Fincrement_filesize(file, 0) >= 0, "find its end");
    {
      const Datasets datasets(file);
      for (const Datasets::Dataset& dataset : datasets.all) {
        std::vector<hsize_t> extents = dataset.extents;
        if (extents.front() == frames) continue;
        // HDF5 wants the filter of chunks that it removes.
        if (compression_of(dataset.creation()) == "bitshuffle-lz4")
          BitshuffleLz4::load(plugin_folder);
        extents.front() = frames;
        hdf5::require(H5Dset_extent(dataset.handle, extents.data()) >= 0, "cut it");
      }
      write_end(file, datasets, frames);
    }
    hdf5::require(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0 && file.close(), "write it");
    const File written(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!written.is_open() || fsync(written.fd()) != 0)
      throw file_error("cannot sync", path, errno);
  });
}

}  // namespace daqiri
