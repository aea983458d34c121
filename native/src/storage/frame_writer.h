/// Writes frames to HDF5 files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memory/region.h"
#include "storage/direct_frames.h"
#include "storage/frame_compression.h"
#include "storage/frame_file.h"
#include "storage/frame_layout.h"
#include "storage/frame_rows.h"
#include "storage/record_writer.h"
#include "storage/recorder_options.h"
#include "storage/write_backend.h"

namespace daqiri {

class FrameWriter final : public RecordWriter {
 public:
  /// Frames are compressed unless `compressor` is null. `backend`: writes them without the page
  /// cache, from device memory only if they are not compressed; null: through the page cache.
  /// Throws Error if no more threads can be started.
  FrameWriter(FrameForm form, std::unique_ptr<FrameCompressor> compressor,
              std::unique_ptr<WriteBackend> backend);
  ~FrameWriter() override { close(false); }

  [[nodiscard]] const char* suffix() const noexcept override { return ".h5"; }
  [[nodiscard]] std::size_t header_size() const noexcept override { return 0; }
  [[nodiscard]] const char* output_name() const noexcept override {
    return direct_ ? direct_->name() : "buffered";
  }
  [[nodiscard]] std::string cufile_mode() const override {
    return direct_ ? direct_->cufile_mode() : std::string();
  }
  void describe(const RunMetadata& metadata) noexcept override;
  void prepare(const std::string& path) override;
  void discard_prepared() noexcept override { prepared_.reset(); }
  void create(const std::string& path) override;
  std::uint32_t write(const Burst& burst, std::uint32_t first, std::uint32_t count,
                      std::uint64_t size_limit) noexcept override;
  std::uint32_t write_absent(const Burst& next, std::uint64_t before, std::uint32_t count,
                             std::uint64_t size_limit) noexcept override;
  void sync() noexcept override;
  bool retry() noexcept override { return false; }
  bool rewind(std::uint64_t records) noexcept override;
  std::unique_ptr<TakenRecords> take_back(std::uint64_t records) noexcept override;
  bool put_back(TakenRecords& records) noexcept override;
  void close(bool durable) noexcept override;
  void remove() noexcept override;
  [[nodiscard]] bool failed() const noexcept override { return !error_.empty(); }
  [[nodiscard]] std::string error() const override { return error_; }
  [[nodiscard]] std::uint64_t size() const noexcept override { return tally_.size; }
  [[nodiscard]] const FileTally& tally() const noexcept override { return tally_; }
  [[nodiscard]] std::uint64_t records() const noexcept override { return tally_.frames; }
  [[nodiscard]] std::uint64_t flushed() const noexcept override { return flushed_.frames; }
  [[nodiscard]] const std::string& path() const noexcept override { return path_; }
  [[nodiscard]] bool still_there() const noexcept override;

  /// Copy frames to `mirror` before they are written. Call before the first file.
  void read_through(std::unique_ptr<memory::HostMirror> mirror) noexcept {
    mirror_ = std::move(mirror);
  }
  /// Compute the reductions of the form from each frame, where it is. Call before the first file.
  void reduce_with(ReduceFrame reduce) noexcept { reduce_ = std::move(reduce); }

 private:
  /// Call `step`; an error ends the file, cut to whole frames.
  template <typename Step>
  void attempt(Step&& step) noexcept;
  void put(const Burst& frame);
  void store_compressed();
  void store_all_compressed();
  /// A frame was stored; its row is the last one.
  void count_row();
  /// Write all frames and rows to the file, so that others can read them. Throws Error.
  void flush();
  /// The first `frames` frames of the file are written, with their rows.
  void note_flushed(std::uint64_t frames);

  const FrameForm form_;
  FrameRows rows_;
  /// Null: frames go through the page cache.
  std::unique_ptr<DirectWrites> direct_;
  /// Null: the CPU reads frames in their buffers.
  std::unique_ptr<memory::HostMirror> mirror_;
  ReduceFrame reduce_;
  /// Of the latest frame.
  std::vector<double> reduced_;
  std::unique_ptr<FrameCompressor> compressor_;
  RunMetadata metadata_;
  std::unique_ptr<FrameFile> prepared_;
  std::unique_ptr<FrameFile> open_;
  /// Of the file at `path_`, also after it was closed.
  FileIdentity own_;
  std::string path_;
  FileTally tally_;
  FileTally flushed_;
  std::string error_;
};

}  // namespace daqiri
