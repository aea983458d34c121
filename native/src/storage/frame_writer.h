/// Writes frames to HDF5 files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memory/region.h"
#include "storage/frame_compression.h"
#include "storage/frame_layout.h"
#include "storage/new_file.h"
#include "storage/record_writer.h"
#include "storage/write_backend.h"

namespace daqiri {

/// What is told beside frames, column by column, until it is in their file.
class FrameRows {
 public:
  explicit FrameRows(const FrameForm& form);

  /// Of the frame in a burst.
  void add(const Burst& frame);
  /// Of a frame that has a row already: its place in each column.
  void add(const std::array<const std::byte*, NUM_FRAME_COLUMNS>& row);
  /// The first `n` are in the file.
  void remove(std::size_t n);
  void clear() noexcept { remove(count_); }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// So many that they should be written.
  [[nodiscard]] bool full() const noexcept { return count_ >= most_; }
  [[nodiscard]] std::size_t most() const noexcept { return most_; }
  [[nodiscard]] const std::byte* column(std::size_t column) const noexcept {
    return columns_[column].data();
  }
  [[nodiscard]] std::uint32_t width(std::size_t column) const noexcept { return widths_[column]; }
  /// `before`, and frames [first, end) of `bytes` each.
  [[nodiscard]] FileTally tally(FileTally before, std::size_t first, std::size_t end,
                                std::uint32_t bytes) const noexcept;

 private:
  template <typename Value>
  [[nodiscard]] Value at(FrameColumn column, std::size_t row) const noexcept;

  std::array<std::uint32_t, NUM_FRAME_COLUMNS> widths_{};
  std::array<std::vector<std::byte>, NUM_FRAME_COLUMNS> columns_;
  std::size_t count_{0};
  std::size_t most_;
};

/// What the layouts have in common.
class FrameWriter : public RecordWriter {
 public:
  [[nodiscard]] const char* suffix() const noexcept final { return ".h5"; }
  [[nodiscard]] std::size_t header_size() const noexcept final { return 0; }
  void create(const std::string& path) final;
  std::uint32_t write(const Burst& burst, std::uint32_t first, std::uint32_t count,
                      std::uint64_t size_limit) noexcept final;
  void sync() noexcept final;
  bool rewind(std::uint64_t records) noexcept final;
  std::unique_ptr<TakenRecords> take_back(std::uint64_t records) noexcept final;
  bool put_back(TakenRecords& records) noexcept final;
  void close(bool durable) noexcept final;
  void remove() noexcept final { remove_file(file_, path_); }
  [[nodiscard]] bool failed() const noexcept final { return !error_.empty(); }
  [[nodiscard]] std::string error() const final { return error_; }
  [[nodiscard]] std::uint64_t size() const noexcept final { return tally_.size; }
  [[nodiscard]] const FileTally& tally() const noexcept final { return tally_; }
  [[nodiscard]] std::uint64_t records() const noexcept final { return tally_.frames; }
  [[nodiscard]] std::uint64_t flushed() const noexcept final { return flushed_.frames; }
  [[nodiscard]] const std::string& path() const noexcept final { return path_; }
  [[nodiscard]] bool still_there() const noexcept final;

  /// Frames are copied there before they are written. Before the first file.
  void read_through(std::unique_ptr<memory::HostMirror> mirror) noexcept {
    mirror_ = std::move(mirror);
  }

 protected:
  explicit FrameWriter(FrameForm form) : form_(std::move(form)), rows_(form_) {}

  /// The file that is prepared has its name; go on with it. Throws Error.
  virtual void begin() = 0;
  /// Put a frame behind the others. Throws Error.
  virtual void put(const Burst& frame) = 0;
  /// All frames and rows into the file, for others to read. Throws Error.
  virtual void flush() = 0;
  /// Forget what is behind the first `frames`, as `flushed_` has done. Throws Error.
  virtual void shorten(std::uint64_t frames) = 0;
  /// Rows [first, first + n) of a column. Throws Error.
  virtual void read_column(FrameColumn column, std::uint64_t first, std::uint64_t n, void* to) = 0;
  /// A frame that is flushed, as it is in the file: compressed, where frames are. Throws Error.
  virtual std::vector<std::byte> read_stored(std::uint64_t frame) = 0;
  /// Put a frame that another file had behind the others. Throws Error.
  virtual void put_stored(std::span<std::byte> frame) = 0;
  /// After an error: leave a file with whole frames, `flushed_` tells how many. Throws Error.
  virtual void cut() = 0;
  /// No more frames come. Throws Error.
  virtual void end() = 0;

  /// So many frames of the file are written, with their rows.
  void note_flushed(std::uint64_t frames);

  const FrameForm form_;
  FrameRows rows_;
  std::unique_ptr<NewFile> next_;
  File file_;
  std::string path_;
  FileTally tally_;
  FileTally flushed_;
  /// Bytes that the file has for sure.
  std::uint64_t least_size_{0};

 private:
  /// Do `step`; a problem ends the file.
  template <typename Step>
  void attempt(Step&& step) noexcept;

  /// Null: the CPU reads frames where they are.
  std::unique_ptr<memory::HostMirror> mirror_;
  std::string error_;
};

/// A frame a chunk, compressed unless `compressor` is null. Others can read along (SWMR). `kind` of
/// these: BUFFERED or DIRECT. `device`: what writes frames that are in device memory, which are not
/// compressed; null: they are in the host's.
std::unique_ptr<FrameWriter> chunked_frames(FrameForm form,
                                            std::unique_ptr<FrameCompressor> compressor,
                                            WriterKind kind,
                                            std::unique_ptr<WriteBackend> device = nullptr);
/// Frames one behind the other, at most `room` of them.
std::unique_ptr<FrameWriter> contiguous_frames(FrameForm form, std::uint64_t room, WriterKind kind,
                                               std::unique_ptr<WriteBackend> device = nullptr);

}  // namespace daqiri
