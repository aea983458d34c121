// One chunk per frame.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "storage/chunk_file.h"
#include "storage/frame_writer.h"

namespace daqiri {

namespace {

class ChunkedFrames final : public FrameWriter {
 public:
  ChunkedFrames(FrameForm form, std::unique_ptr<FrameCompressor> compressor,
                std::unique_ptr<DirectWrites> direct)
      : FrameWriter(std::move(form)),
        direct_(std::move(direct)),
        compressor_(std::move(compressor)) {
    std::uint64_t chunks = 0;
    for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c) {
      const std::uint64_t width = rows_.width(c);
      chunk_rows_[c] = std::clamp<std::uint64_t>(CHUNK_BYTES / width, 1, CHUNK_ROWS);
      const std::uint64_t bytes = chunk_rows_[c] * width;
      chunks += (rows_.most() / chunk_rows_[c] + 2) * (direct_ ? ChunkFile::taken(bytes) : bytes);
    }
    spare_ = SPARE + chunks + (direct_ ? 2 * ChunkFile::BLOCK : 0);
  }
  ~ChunkedFrames() override {
    close(false);
    discard_prepared();
  }

  [[nodiscard]] const char* output_name() const noexcept override {
    return direct_ ? direct_->name() : "buffered";
  }
  [[nodiscard]] std::string cufile_mode() const override {
    return direct_ ? direct_->cufile_mode() : std::string();
  }
  void discard_prepared() noexcept override {
    if (prepared_.storage) prepared_.storage->give_up();
    prepared_.close();
    next_.reset();
  }

  void prepare(const std::string& path) override {
    discard_prepared();
    auto next = std::make_unique<NewFile>(path, true);
    Open opened;
    opened.storage = std::make_unique<ChunkFile>(next->fd(), spare_, direct_.get());
    try {
      if (const int problem = opened.storage->reserve(0); problem != 0)
        throw file_error("cannot write", path, problem);
      lay_out(opened, path);
    } catch (const Error& e) {
      opened.storage->give_up();
      const Error told = about(e, path, *opened.storage);
      opened.close();
      throw told;
    }
    next_ = std::move(next);
    prepared_ = std::move(opened);
  }

  bool retry() noexcept override { return false; }

 protected:
  void begin() override {
    open_ = std::exchange(prepared_, {});
    least_size_ = open_.storage->size();
    try {
      continue_behind(0);
    } catch (const Error&) {
      // The file is removed.
      open_.storage->give_up();
      open_.close();
      throw;
    }
  }

  void put(const Burst& frame) override {
    // The burst is held, not changed.
    auto& held = const_cast<Burst&>(frame);
    if (!compressor_) return store(frame.pkts[0][0], form_.bytes, &held);
    while (compressor_->full() || (!compressor_->empty() && compressor_->ready()))
      store_compressed();
    compressor_->put(held);
  }

  /// Chunks that are not in a file have the fill value.
  void put_absent(std::uint64_t frames) override {
    settle();
    continue_behind(stored_ + frames);
    set_frames(open_.frames, NUM_FRAME_COLUMNS, stored_);
  }

  void flush() override {
    settle();
    publish();
  }

  void shorten(std::uint64_t frames) override {
    continue_behind(frames);
    set_frames(open_.frames, NUM_FRAME_COLUMNS, frames);
    check(H5Dflush(open_.frames) >= 0);
    for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c) {
      set_frames(open_.columns[c], c, frames);
      check(H5Dflush(open_.columns[c]) >= 0);
    }
  }

  void put_stored(std::span<std::byte> frame) override {
    if (frame.empty()) return put_absent(1);
    store(frame.data(), frame.size(), nullptr);
  }

  std::vector<std::byte> read_stored(std::uint64_t frame) override {
    std::vector<hsize_t>& at = position_;
    at.assign(1 + form_.shape.size(), 0);
    at.front() = frame;
    unsigned filters = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t size = 0;
    check(H5Dget_chunk_info_by_coord(open_.frames, at.data(), &filters, &address, &size) >= 0);
    if (address == HADDR_UNDEF) return {};
    std::vector<std::byte> bytes(size);
    std::uint32_t skipped_filters = 0;
    check(H5Dread_chunk(open_.frames, H5P_DEFAULT, at.data(), &skipped_filters, bytes.data()) >= 0);
    return bytes;
  }

  void read_column(FrameColumn column, std::uint64_t first, std::uint64_t n, void* to) override {
    const hid_t dataset = open_.columns[static_cast<std::size_t>(column)];
    const hdf5::Handle type(H5Dget_type(dataset), H5Tclose, LAY_OUT);
    const hdf5::Handle in_file(H5Dget_space(dataset), H5Sclose, LAY_OUT);
    std::array<hsize_t, H5S_MAX_RANK> start{first};
    std::array<hsize_t, H5S_MAX_RANK> count{};
    const int rank = H5Sget_simple_extent_dims(in_file, count.data(), nullptr);
    check(rank > 0);
    count.front() = n;
    const hdf5::Handle here(H5Screate_simple(rank, count.data(), nullptr), H5Sclose, LAY_OUT);
    check(H5Sselect_hyperslab(in_file, H5S_SELECT_SET, start.data(), nullptr, count.data(),
                              nullptr) >= 0);
    check(H5Dread(dataset, type, here, in_file, H5P_DEFAULT, to) >= 0);
  }

  void cut() override {
    if (compressor_) compressor_->clear();
    if (direct_) {
      direct_->end();
      stored_ = std::min(stored_, stored_before_ + direct_->whole());
    }
    stored_ = std::min(stored_, flushed_.frames + rows_.count());
    const int fd = file_.fd();
    try {
      // The frame that failed may have added one.
      set_frames(open_.frames, NUM_FRAME_COLUMNS, stored_);
      for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c) set_frames(open_.columns[c], c, stored_);
      if (stored_ > flushed_.frames) publish();
      check(open_.close_library());
    } catch (const Error&) {
      // The file stays as it was at the last flush, or slightly longer.
      open_.storage->give_up();
    }
    open_.close();
    ChunkFile storage(fd);
    hdf5::Handle file = hdf5::reopen(storage, path_);
    for (std::size_t c = 0; c <= NUM_FRAME_COLUMNS; ++c)
      set_frames(dataset_of(file, c, H5P_DEFAULT), c, flushed_.frames);
    if (!file.close()) throw about({Status::GENERIC_FAILURE, "cannot close"}, path_, storage);
    if (const int problem = storage.trim(); problem != 0)
      throw file_error("cannot cut", path_, problem);
  }

  void end() override {
    if (direct_) direct_->end();
    check(open_.close_library());
    const int problem = open_.storage->trim();
    open_.close();
    if (problem != 0) throw file_error("cannot cut", path_, problem);
  }

 private:
  struct Open {
    /// Returns whether the library has written everything.
    bool close_library() noexcept {
      bool good = frames.close();
      for (hdf5::Handle& column : columns) good = column.close() && good;
      return file.close() && good;
    }
    void close() noexcept {
      close_library();
      storage.reset();
    }

    // First member, because it must outlive the library's objects.
    std::unique_ptr<ChunkFile> storage;
    hdf5::Handle file;
    std::array<hdf5::Handle, NUM_FRAME_COLUMNS> columns;
    hdf5::Handle frames;
  };
  /// Rows of a column; `width`: size of the second dimension, 0: there is none.
  struct Selection {
    Selection(hid_t dataset, std::uint64_t first_row, std::uint64_t rows, std::uint64_t width)
        : in_file(H5Dget_space(dataset), H5Sclose, LAY_OUT) {
      const std::array<hsize_t, 2> first{first_row, 0};
      const std::array<hsize_t, 2> count{rows, width};
      here = {H5Screate_simple(width > 0 ? 2 : 1, count.data(), nullptr), H5Sclose, LAY_OUT};
      hdf5::require(H5Sselect_hyperslab(in_file, H5S_SELECT_SET, first.data(), nullptr,
                                        count.data(), nullptr) >= 0,
                    "select rows");
    }
    hdf5::Handle in_file;
    hdf5::Handle here;
  };
  static constexpr std::uint64_t CHUNK_ROWS = 1024;
  static constexpr std::uint64_t CHUNK_BYTES = std::uint64_t{64} << 10U;
  static constexpr std::uint64_t SPARE = std::uint64_t{128} << 10U;

  static Error about(const Error& error, const std::string& path, const ChunkFile& storage) {
    if (storage.problem() == 0) return error;
    return {error.status(), file_problem("cannot write", path, storage.problem())};
  }

  void check(bool good) const {
    if (good) return;
    const std::string reason = hdf5::latest_error();
    std::string text = open_.storage->problem() != 0
                           ? file_problem("cannot write", path_, open_.storage->problem())
                           : "cannot write " + path_;
    if (!reason.empty()) text += " (HDF5: " + reason + ")";
    throw Error(Status::GENERIC_FAILURE, text);
  }

  void lay_out(Open& opened, const std::string& path) const {
    opened.file = hdf5::create(*opened.storage, path);
    make_frame_layout(opened.file, form_, [this](const FrameColumn* column, hid_t properties) {
      std::vector<hsize_t> chunk{1};
      if (column == nullptr) {
        chunk.insert(chunk.end(), form_.shape.begin(), form_.shape.end());
      } else {
        chunk.front() = chunk_rows_[static_cast<std::size_t>(*column)];
        if (*column == FrameColumn::VALID) chunk.push_back(form_.valid_bytes());
      }
      hdf5::require(H5Pset_chunk(properties, static_cast<int>(chunk.size()), chunk.data()) >= 0,
                    LAY_OUT);
      if (column == nullptr && compressor_) compressor_->filter().add_to(properties);
    });
    hdf5::require(H5Fstart_swmr_write(opened.file) >= 0, "enable concurrent reading");
    const hdf5::Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose, LAY_OUT);
    // Frames bypass the chunk cache.
    hdf5::require(H5Pset_chunk_cache(access, 0, 0, 0.0) >= 0, LAY_OUT);
    for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c)
      opened.columns[c] = dataset_of(opened.file, c, H5P_DEFAULT);
    opened.frames = dataset_of(opened.file, NUM_FRAME_COLUMNS, access);
    // Readers see new frames only after `publish`, which writes their rows first.
    hdf5::require(H5Odisable_mdc_flushes(opened.frames) >= 0, LAY_OUT);
  }

  /// The dataset of a column, or of the frames if `c` is the number of columns.
  [[nodiscard]] hdf5::Handle dataset_of(hid_t file, std::size_t c, hid_t access) const {
    const char* const name = c < NUM_FRAME_COLUMNS ? name_of(static_cast<FrameColumn>(c)) : "data";
    return {H5Dopen2(file, (detector_of(form_) + "/" + name).c_str(), access), H5Dclose, LAY_OUT};
  }

  void set_frames(hid_t dataset, std::size_t c, std::uint64_t frames) const {
    std::vector<hsize_t> extents{frames};
    if (c == NUM_FRAME_COLUMNS) {
      extents.insert(extents.end(), form_.shape.begin(), form_.shape.end());
    } else if (static_cast<FrameColumn>(c) == FrameColumn::VALID) {
      extents.push_back(form_.valid_bytes());
    }
    hdf5::require(H5Dset_extent(dataset, extents.data()) >= 0, "set the number of frames");
  }

  /// Store all frames that are being compressed or written.
  void settle() {
    while (compressor_ && !compressor_->empty()) store_compressed();
    if (!direct_) return;
    const int problem = direct_->wait();
    open_.storage->note(problem);
    check(problem == 0);
  }

  void store_compressed() {
    const std::span<const std::byte> chunk = compressor_->front();
    if (chunk.empty()) throw Error(Status::GENERIC_FAILURE, "no memory to compress a frame");
    store(chunk.data(), chunk.size(), nullptr);
    compressor_->pop();
  }

  /// Continue so that the next frame has number `frames`; no writes are in flight. Throws Error.
  void continue_behind(std::uint64_t frames) {
    stored_ = stored_before_ = frames;
    const int problem = direct_ ? direct_->begin(file_.fd(), path_) : 0;
    if (problem != 0) throw file_error("cannot write", path_, problem);
  }

  /// `owner`: see DirectWrites::put. Throws Error.
  void store(const void* chunk, std::size_t bytes, Burst* owner) {
    std::vector<hsize_t>& at = position_;
    at.assign(1, stored_ + 1);
    at.insert(at.end(), form_.shape.begin(), form_.shape.end());
    check(H5Dset_extent(open_.frames, at.data()) >= 0);
    std::fill(at.begin(), at.end(), 0);
    at.front() = stored_;
    open_.storage->expect_frame(true, owner);
    const herr_t written = H5Dwrite_chunk(open_.frames, H5P_DEFAULT, 0, at.data(), bytes, chunk);
    open_.storage->expect_frame(false);
    check(written >= 0);
    ++stored_;
  }

  /// Make stored frames and their rows visible to readers.
  void publish() {
    const std::uint64_t frames = stored_;
    for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c) write_column(c, frames);
    // Columns first, so that a reader who sees a frame sees its row.
    for (const hdf5::Handle& column : open_.columns) check(H5Dflush(column) >= 0);
    check(H5Dflush(open_.frames) >= 0);
    note_flushed(frames);
    least_size_ = open_.storage->size();
  }

  void write_column(std::size_t c, std::uint64_t frames) {
    const hid_t dataset = open_.columns[c];
    check(H5Dset_extent(dataset, std::array<hsize_t, 2>{frames, form_.valid_bytes()}.data()) >= 0);
    const hdf5::Handle type(H5Dget_type(dataset), H5Tclose, LAY_OUT);
    const bool wide = static_cast<FrameColumn>(c) == FrameColumn::VALID;
    const Selection rows(dataset, flushed_.frames, frames - flushed_.frames,
                         wide ? form_.valid_bytes() : 0);
    check(H5Dwrite(dataset, type, rows.here, rows.in_file, H5P_DEFAULT, rows_.column(c)) >= 0);
  }

  std::array<std::uint64_t, NUM_FRAME_COLUMNS> chunk_rows_{};
  std::uint64_t spare_;
  /// Writes frames directly; null: through the page cache. Outlives its users.
  std::unique_ptr<DirectWrites> direct_;
  Open prepared_;
  Open open_;
  std::vector<hsize_t> position_;
  /// Number of chunks in the file, and how many of them were there when direct writes began.
  std::uint64_t stored_{0};
  std::uint64_t stored_before_{0};
  std::unique_ptr<FrameCompressor> compressor_;
};

}  // namespace

std::unique_ptr<FrameWriter> chunked_frames(FrameForm form,
                                            std::unique_ptr<FrameCompressor> compressor,
                                            WriterKind kind, std::unique_ptr<WriteBackend> device) {
  std::unique_ptr<DirectWrites> direct;
  if (device) {
    direct = std::make_unique<DirectWrites>(form.bytes, std::move(device));
  } else if (kind == WriterKind::DIRECT) {
    direct = std::make_unique<DirectWrites>(form.bytes);
  }
  return std::make_unique<ChunkedFrames>(std::move(form), std::move(compressor), std::move(direct));
}

}  // namespace daqiri
