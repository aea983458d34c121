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

/// Rows with information about frames, stored by column until they are written to the file.
class FrameRows {
 public:
  explicit FrameRows(const FrameForm& form);

  /// Add the row of the frame in a burst.
  void add(const Burst& frame);
  /// Add a row for a frame of which no packet came, `before` frames before `next`. Its arrival is
  /// evenly between those of the previous row and of `next`.
  void add_absent(const Burst& next, std::uint64_t before);
  /// Add a row that was read from another file; `row`: its value in each column.
  void add(const std::array<const std::byte*, NUM_FRAME_COLUMNS>& row);
  /// Remove the first `n` rows, which are in the file.
  void remove(std::size_t n);
  void clear() noexcept { remove(count_); }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Whether there are enough rows to write them.
  [[nodiscard]] bool full() const noexcept { return count_ >= most_; }
  [[nodiscard]] std::size_t most() const noexcept { return most_; }
  [[nodiscard]] const std::byte* column(std::size_t column) const noexcept {
    return columns_[column].data();
  }
  [[nodiscard]] std::uint32_t width(std::size_t column) const noexcept { return widths_[column]; }
  /// `before` plus frames [first, end) of `bytes` each.
  [[nodiscard]] FileTally tally(FileTally before, std::size_t first, std::size_t end,
                                std::uint32_t bytes) const noexcept;

 private:
  template <typename Value>
  void push(FrameColumn column, Value value);
  template <typename Value>
  [[nodiscard]] Value at(FrameColumn column, std::size_t row) const noexcept;

  std::array<std::uint32_t, NUM_FRAME_COLUMNS> widths_{};
  std::array<std::vector<std::byte>, NUM_FRAME_COLUMNS> columns_;
  /// Number of batch numbers.
  std::uint64_t numbers_;
  /// Arrival of the latest row, ns; 0: there was none.
  std::uint64_t latest_{0};
  std::size_t count_{0};
  std::size_t most_;
};

/// Common part of the layouts.
class FrameWriter : public RecordWriter {
 public:
  [[nodiscard]] const char* suffix() const noexcept final { return ".h5"; }
  [[nodiscard]] std::size_t header_size() const noexcept final { return 0; }
  void create(const std::string& path) final;
  std::uint32_t write(const Burst& burst, std::uint32_t first, std::uint32_t count,
                      std::uint64_t size_limit) noexcept final;
  std::uint32_t write_absent(const Burst& next, std::uint64_t before, std::uint32_t count,
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

  /// Copy frames to `mirror` before they are written. Call before the first file.
  void read_through(std::unique_ptr<memory::HostMirror> mirror) noexcept {
    mirror_ = std::move(mirror);
  }

 protected:
  explicit FrameWriter(FrameForm form) : form_(std::move(form)), rows_(form_) {}

  /// The prepared file has its name; start writing to it. Throws Error.
  virtual void begin() = 0;
  /// Append a frame. Throws Error.
  virtual void put(const Burst& frame) = 0;
  /// Append `frames` frames of fill value. Throws Error.
  virtual void put_absent(std::uint64_t frames) = 0;
  /// Write all frames and rows to the file, so that others can read them. Throws Error.
  virtual void flush() = 0;
  /// Remove frames after the first `frames`, which `flushed_` no longer counts. Throws Error.
  virtual void shorten(std::uint64_t frames) = 0;
  /// Rows [first, first + n) of a column. Throws Error.
  virtual void read_column(FrameColumn column, std::uint64_t first, std::uint64_t n, void* to) = 0;
  /// Read a flushed frame as it is stored: compressed, if the file is; empty: it is absent. Throws
  /// Error.
  virtual std::vector<std::byte> read_stored(std::uint64_t frame) = 0;
  /// Append a frame as it was stored in another file. Throws Error.
  virtual void put_stored(std::span<std::byte> frame) = 0;
  /// After an error: cut the file to whole frames and set `flushed_`. Throws Error.
  virtual void cut() = 0;
  /// No more frames follow. Throws Error.
  virtual void end() = 0;

  /// The first `frames` frames of the file are written, with their rows.
  void note_flushed(std::uint64_t frames);

  const FrameForm form_;
  FrameRows rows_;
  std::unique_ptr<NewFile> next_;
  File file_;
  std::string path_;
  FileTally tally_;
  FileTally flushed_;
  /// Bytes that the file certainly has.
  std::uint64_t least_size_{0};

 private:
  /// Call `step`; an error ends the file.
  template <typename Step>
  void attempt(Step&& step) noexcept;

  /// Null: the CPU reads frames in their buffers.
  std::unique_ptr<memory::HostMirror> mirror_;
  std::string error_;
};

/// One chunk per frame, compressed unless `compressor` is null. Other processes can read the file
/// while it is written (SWMR). `kind`: BUFFERED or DIRECT. `device`: writes frames in device
/// memory, which are not compressed; null: frames are in host memory.
std::unique_ptr<FrameWriter> chunked_frames(FrameForm form,
                                            std::unique_ptr<FrameCompressor> compressor,
                                            WriterKind kind,
                                            std::unique_ptr<WriteBackend> device = nullptr);

}  // namespace daqiri
