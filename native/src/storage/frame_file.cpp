#include "storage/frame_file.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace daqiri {

namespace {

constexpr std::uint64_t CHUNK_ROWS = 1024;
constexpr std::uint64_t CHUNK_BYTES = std::uint64_t{64} << 10U;
constexpr std::uint64_t SPARE = std::uint64_t{128} << 10U;

/// Rows of a column; `width`: size of the second dimension, 0: there is none.
struct Selection {
  Selection(hid_t dataset, std::uint64_t first_row, std::uint64_t rows, std::uint64_t width)
      : in_file(H5Dget_space(dataset), H5Sclose, LAY_OUT) {
    const std::array<hsize_t, 2> first{first_row, 0};
    const std::array<hsize_t, 2> count{rows, width};
    here = {H5Screate_simple(width > 0 ? 2 : 1, count.data(), nullptr), H5Sclose, LAY_OUT};
    hdf5::require(H5Sselect_hyperslab(in_file, H5S_SELECT_SET, first.data(), nullptr, count.data(),
                                      nullptr) >= 0,
                  "select rows");
  }
  hdf5::Handle in_file;
  hdf5::Handle here;
};

}  // namespace

// --- Making and ending a file

FrameFile::FrameFile(const std::string& path, const FrameForm& form, const RunMetadata& metadata,
                     const BitshuffleLz4* filter, std::size_t most_rows, DirectWrites* direct)
    : path_(path),
      form_(form),
      direct_(direct),
      chunk_rows_(form.columns()),
      next_(std::make_unique<NewFile>(path, true)),
      columns_(form.columns()),
      awaits_run_(!metadata.empty() && !names_run(metadata)) {
  const bool pages = direct != nullptr;
  std::uint64_t spare = SPARE + (pages ? 2 * ChunkFile::BLOCK : 0);
  for (std::size_t c = 0; c < form.columns(); ++c) {
    const std::uint64_t width = width_of(c, form);
    chunk_rows_[c] = std::clamp<std::uint64_t>(CHUNK_BYTES / width, 1, CHUNK_ROWS);
    const std::uint64_t bytes = chunk_rows_[c] * width;
    spare += (most_rows / chunk_rows_[c] + 2) * (pages ? ChunkFile::taken(bytes) : bytes);
  }
  storage_ = std::make_unique<ChunkFile>(next_->fd(), spare, direct);
  try {
    if (const int problem = storage_->reserve(0); problem != 0)
      throw file_error("cannot write", path, problem);
    lay_out(form, metadata, filter);
  } catch (const Error& e) {
    const Error told = about(e);
    abandon();
    throw told;
  }
}

FrameFile::~FrameFile() { abandon(); }

void FrameFile::abandon() noexcept {
  if (storage_ == nullptr) return;
  storage_->give_up();
  close_library();
  storage_.reset();
}

void FrameFile::lay_out(const FrameForm& form, const RunMetadata& metadata,
                        const BitshuffleLz4* filter) {
  library_ = hdf5::create(*storage_, path_);
  make_frame_layout(
      library_, form, metadata, [&](std::optional<std::size_t> column, hid_t properties) {
        std::vector<hsize_t> chunk{1};
        if (!column) {
          chunk.insert(chunk.end(), form.shape.begin(), form.shape.end());
        } else {
          chunk.front() = chunk_rows_[*column];
          if (const std::uint32_t extent = extent_of(*column, form); extent > 0)
            chunk.push_back(extent);
        }
        hdf5::require(H5Pset_chunk(properties, static_cast<int>(chunk.size()), chunk.data()) >= 0,
                      LAY_OUT);
        if (!column && filter != nullptr) filter->add_to(properties);
      });
  hdf5::require(H5Fstart_swmr_write(library_) >= 0, "enable concurrent reading");
  const hdf5::Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose, LAY_OUT);
  // Frames bypass the chunk cache.
  hdf5::require(H5Pset_chunk_cache(access, 0, 0, 0.0) >= 0, LAY_OUT);
  for (std::size_t c = 0; c < columns_.size(); ++c)
    columns_[c] = dataset_of(library_, c, H5P_DEFAULT);
  frames_ = dataset_of(library_, columns_.size(), access);
  // Readers see new frames only after `publish`, which writes their rows first.
  hdf5::require(H5Odisable_mdc_flushes(frames_) >= 0, LAY_OUT);
}

void FrameFile::describe(const RunMetadata& metadata) {
  if (!awaits_run_) return;
  awaits_run_ = !names_run(metadata);
  check(write_run(library_, metadata));
}

void FrameFile::begin() {
  next_->appear();
  file_ = next_->take();
  next_.reset();
  least_size_ = storage_->size();
  const int problem = direct_ != nullptr ? direct_->begin(file_.fd(), path_) : 0;
  if (problem != 0) throw file_error("cannot write", path_, problem);
}

void FrameFile::end(bool durable) {
  if (direct_ != nullptr) direct_->end();
  check(write_time(library_, END_TIME, last_time_));
  check(close_library());
  const int problem = storage_->trim();
  if (problem != 0) throw file_error("cannot cut", path_, problem);
  if (durable && fdatasync(file_.fd()) != 0) throw file_error("cannot write", path_, errno);
  storage_.reset();
}

int FrameFile::close() noexcept {
  abandon();
  // Before the descriptor is closed: a child that was cloned without fork(3) shares the lock.
  flock(file_.fd(), LOCK_UN);
  return file_.close();
}

// --- Frames

void FrameFile::store(const void* chunk, std::size_t bytes, Burst* owner) {
  std::vector<hsize_t>& at = position_;
  at.assign(1, stored_ + 1);
  at.insert(at.end(), form_.shape.begin(), form_.shape.end());
  check(H5Dset_extent(frames_, at.data()) >= 0);
  std::fill(at.begin(), at.end(), 0);
  at.front() = stored_;
  check(storage_->expect_frame(bytes) == 0);
  const herr_t noted = H5Dwrite_chunk(frames_, H5P_DEFAULT, 0, at.data(), bytes, chunk);
  const int problem = storage_->write_frame(chunk, owner);
  check(noted >= 0 && problem == 0);
  ++stored_;
  ++writes_since_;
}

void FrameFile::skip(std::uint64_t frames) {
  if (direct_ != nullptr) gaps_.push_back({writes_since_, frames});
  stored_ += frames;
}

void FrameFile::go_on_behind(std::uint64_t frames) noexcept {
  stored_ = settled_ = frames;
  if (direct_ != nullptr) settled_whole_ = direct_->whole();
  writes_since_ = 0;
  gaps_.clear();
}

std::uint64_t FrameFile::publish(const FrameRows& rows, std::uint64_t first) {
  if (direct_ != nullptr) {
    const int problem = direct_->wait();
    storage_->note(problem);
    check(problem == 0);
  }
  go_on_behind(stored_);
  write_rows(rows, first);
  least_size_ = storage_->size();
  return stored_;
}

void FrameFile::write_rows(const FrameRows& rows, std::uint64_t first) {
  if (first == 0) check(write_time(library_, START_TIME, stored_ > 0 ? rows.first_time() : 0));
  if (stored_ > first) last_time_ = rows.last_time(stored_ - first - 1);
  set_frames(frames_, columns_.size(), stored_);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    set_frames(columns_[c], c, stored_);
    if (stored_ == first) continue;
    const hdf5::Handle type(H5Dget_type(columns_[c]), H5Tclose, LAY_OUT);
    const Selection at(columns_[c], first, stored_ - first, extent_of(c, form_));
    check(H5Dwrite(columns_[c], type, at.here, at.in_file, H5P_DEFAULT, rows.column(c)) >= 0);
  }
  // Columns first, so that a reader who sees a frame sees its row.
  for (const hdf5::Handle& column : columns_) check(H5Dflush(column) >= 0);
  check(H5Dflush(frames_) >= 0);
}

bool FrameFile::has_rows(const FrameRows& rows, std::uint64_t first) const {
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::vector<std::byte> found((stored_ - first) * rows.width(c));
    read_column(c, first, stored_ - first, found.data());
    if (!std::equal(found.begin(), found.end(), rows.column(c))) return false;
  }
  return true;
}

void FrameFile::shorten(std::uint64_t frames) {
  go_on_behind(frames);
  if (frames == 0) check(write_time(library_, START_TIME, 0));
  set_frames(frames_, columns_.size(), frames);
  check(H5Dflush(frames_) >= 0);
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    set_frames(columns_[c], c, frames);
    check(H5Dflush(columns_[c]) >= 0);
  }
  find_last_time(frames);
}

void FrameFile::find_last_time(std::uint64_t frames) {
  last_time_ = 0;
  if (frames > 0) read_column(FrameColumn::LAST_TIMESTAMP, frames - 1, 1, &last_time_);
}

std::vector<std::byte> FrameFile::read_stored(std::uint64_t frame) const {
  std::vector<hsize_t> at(1 + form_.shape.size());
  at.front() = frame;
  unsigned filters = 0;
  haddr_t address = HADDR_UNDEF;
  hsize_t size = 0;
  check(H5Dget_chunk_info_by_coord(frames_, at.data(), &filters, &address, &size) >= 0);
  if (address == HADDR_UNDEF) return {};
  std::vector<std::byte> bytes(size);
  std::uint32_t skipped_filters = 0;
  check(H5Dread_chunk(frames_, H5P_DEFAULT, at.data(), &skipped_filters, bytes.data()) >= 0);
  return bytes;
}

void FrameFile::read_column(std::size_t c, std::uint64_t first, std::uint64_t n, void* to) const {
  const hdf5::Handle type(H5Dget_type(columns_[c]), H5Tclose, LAY_OUT);
  const Selection selected(columns_[c], first, n, extent_of(c, form_));
  check(H5Dread(columns_[c], type, selected.here, selected.in_file, H5P_DEFAULT, to) >= 0);
}

// --- After an error

std::uint64_t FrameFile::salvage(const FrameRows& rows, std::uint64_t first) {
  if (direct_ != nullptr) direct_->end();
  // The one that failed may have no row.
  const std::uint64_t frames = std::min(whole(), first + rows.count());
  try {
    // Before it is closed, as there is space for them: it is reserved. The frame that failed may
    // have a chunk.
    stored_ = frames;
    write_rows(rows, first);
    check(close_library());
    cut(rows, first, frames);
    return frames;
  } catch (const std::exception&) {
    // The file stays as it was when frames were last published, or slightly longer.
    abandon();
  }
  cut(rows, first, first);
  return first;
}

std::uint64_t FrameFile::whole() const noexcept {
  if (direct_ == nullptr) return stored_;
  const std::uint64_t writes = direct_->whole() - settled_whole_;
  std::uint64_t frames = settled_ + writes;
  for (const Gap& gap : gaps_) frames += gap.writes <= writes ? gap.frames : 0;
  // One that was written is not stored if the library could not index it.
  return std::min(frames, stored_);
}

void FrameFile::cut(const FrameRows& rows, std::uint64_t first, std::uint64_t frames) {
  storage_ = std::make_unique<ChunkFile>(file_.fd());
  library_ = hdf5::reopen(*storage_, path_);
  for (std::size_t c = 0; c < columns_.size(); ++c)
    columns_[c] = dataset_of(library_, c, H5P_DEFAULT);
  frames_ = dataset_of(library_, columns_.size(), H5P_DEFAULT);
  stored_ = frames;
  if (frames == first || !has_rows(rows, first)) write_rows(rows, first);
  find_last_time(frames);
  check(write_time(library_, END_TIME, last_time_));
  if (!close_library()) throw about({Status::GENERIC_FAILURE, "cannot close"});
  const int problem = storage_->trim();
  if (problem != 0) throw file_error("cannot cut", path_, problem);
  least_size_ = storage_->size();
  storage_.reset();
}

// --- The library

hdf5::Handle FrameFile::dataset_of(hid_t file, std::size_t c, hid_t access) const {
  const char* const name = c < columns_.size() ? name_of(c, form_) : "data";
  return {H5Dopen2(file, (detector_of(form_) + "/" + name).c_str(), access), H5Dclose, LAY_OUT};
}

void FrameFile::set_frames(hid_t dataset, std::size_t c, std::uint64_t frames) const {
  std::vector<hsize_t> extents{frames};
  if (c == columns_.size()) {
    extents.insert(extents.end(), form_.shape.begin(), form_.shape.end());
  } else if (const std::uint32_t extent = extent_of(c, form_); extent > 0) {
    extents.push_back(extent);
  }
  check(H5Dset_extent(dataset, extents.data()) >= 0);
}

void FrameFile::check(bool good) const {
  if (good) return;
  const std::string reason = hdf5::latest_error();
  std::string text = storage_->problem() != 0
                         ? file_problem("cannot write", path_, storage_->problem())
                         : "cannot write " + path_;
  if (!reason.empty()) text += " (HDF5: " + reason + ")";
  throw Error(Status::GENERIC_FAILURE, text);
}

Error FrameFile::about(const Error& error) const {
  if (storage_->problem() == 0) return error;
  return {error.status(), file_problem("cannot write", path_, storage_->problem())};
}

bool FrameFile::close_library() noexcept {
  storage_->expect_close();
  bool good = frames_.close();
  for (hdf5::Handle& column : columns_) good = column.close() && good;
  return library_.close() && good && !storage_->given_up();
}

}  // namespace daqiri
