/// A file of frames that is being written (HDF5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/chunk_file.h"
#include "storage/direct_frames.h"
#include "storage/frame_compression.h"
#include "storage/frame_layout.h"
#include "storage/frame_rows.h"
#include "storage/hdf5_file.h"
#include "storage/new_file.h"

namespace daqiri {

/// One chunk per frame. Other processes can read the file while it is written (SWMR). One thread.
///
/// All functions throw Error unless they are noexcept.
class FrameFile {
 public:
  /// Lay out the file at `path`, which is not visible yet. `filter`: compresses frames; null: they
  /// are stored as they are. At most `most_rows` rows are published at once. `direct`: writes
  /// frames without the page cache; null: the caller writes them through it. `form` and `direct`
  /// must live longer. `metadata`: see `make_frame_layout`.
  FrameFile(const std::string& path, const FrameForm& form, const RunMetadata& metadata,
            const BitshuffleLz4* filter, std::size_t most_rows, DirectWrites* direct);
  FrameFile(const FrameFile&) = delete;
  FrameFile& operator=(const FrameFile&) = delete;
  /// Without `end`, the file stays as it was when frames were last published.
  ~FrameFile();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Write the values of its run, unless they are known.
  void describe(const RunMetadata& metadata);
  /// Make it visible; frames may be stored in it now.
  void begin();
  /// Append a frame as it is in a chunk. `owner`: see DirectWrites::put.
  void store(const void* chunk, std::size_t bytes, Burst* owner);
  /// Append frames of fill value: chunks that are not in the file have it.
  void skip(std::uint64_t frames);
  /// Make stored frames and their rows visible to readers. `rows` follow the first `first` rows.
  /// Returns the number of frames.
  std::uint64_t publish(const FrameRows& rows, std::uint64_t first);
  /// Remove published frames after the first `frames`.
  void shorten(std::uint64_t frames);
  /// Rows [first, first + n) of a column.
  void read_column(std::size_t column, std::uint64_t first, std::uint64_t n, void* to) const;
  void read_column(FrameColumn column, std::uint64_t first, std::uint64_t n, void* to) const {
    read_column(static_cast<std::size_t>(column), first, n, to);
  }
  /// Read a published frame as it is stored; empty: it is absent.
  [[nodiscard]] std::vector<std::byte> read_stored(std::uint64_t frame) const;

  /// After an error: end the file with all frames that are in it and have a row, if that is still
  /// possible, and otherwise with the first `first`. Returns their number.
  std::uint64_t salvage(const FrameRows& rows, std::uint64_t first);
  /// No more frames follow; all are published. `durable`: sync it to disk.
  void end(bool durable);
  /// Close the descriptor; without `end`, see the destructor. Returns errno.
  int close() noexcept;
  [[nodiscard]] FileIdentity identity() const noexcept { return identity_of(file_); }
  [[nodiscard]] bool still_there() const noexcept { return file_has(file_, least_size_); }

 private:
  void lay_out(const FrameForm& form, const RunMetadata& metadata, const BitshuffleLz4* filter);
  /// The dataset of a column, or of the frames if `c` is the number of columns.
  [[nodiscard]] hdf5::Handle dataset_of(hid_t file, std::size_t c, hid_t access) const;
  void set_frames(hid_t dataset, std::size_t c, std::uint64_t frames) const;
  void find_last_time(std::uint64_t frames);
  /// Write rows of all frames, none of which is in flight, and make them visible.
  void write_rows(const FrameRows& rows, std::uint64_t first);
  /// Whether they are in the file: the library does not index a new chunk of a column that it could
  /// not write at once, even if it writes it later.
  [[nodiscard]] bool has_rows(const FrameRows& rows, std::uint64_t first) const;
  /// Open the closed file anew and cut it to the first `first` frames and those with the rows.
  void cut(const FrameRows& rows, std::uint64_t first, std::uint64_t frames);
  /// Number of frames up to the first one that is not in the file; no writes are in flight.
  [[nodiscard]] std::uint64_t whole() const noexcept;
  /// The next frame has number `frames`; no writes are in flight.
  void go_on_behind(std::uint64_t frames) noexcept;
  void check(bool good) const;
  /// The same error, or that of the disk which caused it.
  [[nodiscard]] Error about(const Error& error) const;
  /// Returns whether the library has written everything.
  bool close_library() noexcept;
  /// Close what the library has open, and write nothing.
  void abandon() noexcept;

  const std::string path_;
  const FrameForm& form_;
  DirectWrites* const direct_;
  /// Rows in a chunk of a column.
  std::vector<std::uint64_t> chunk_rows_;
  std::unique_ptr<NewFile> next_;
  File file_;
  // Before the library's objects, which it must outlive.
  std::unique_ptr<ChunkFile> storage_;
  hdf5::Handle library_;
  std::vector<hdf5::Handle> columns_;
  hdf5::Handle frames_;
  std::vector<hsize_t> position_;
  /// Whether it has space for values of its run, which is not known yet.
  bool awaits_run_;
  /// Number of frames in the file.
  std::uint64_t stored_{0};
  /// When the last packet of the last published frame arrived, ns; 0: there is none.
  std::uint64_t last_time_{0};
  /// When no write was in flight last: number of frames, and DirectWrites::whole.
  std::uint64_t settled_{0};
  std::uint64_t settled_whole_{0};
  /// Since then: number of writes, and frames that were skipped after so many of them.
  std::uint64_t writes_since_{0};
  struct Gap {
    std::uint64_t writes;
    std::uint64_t frames;
  };
  std::vector<Gap> gaps_;
  /// Bytes that the file certainly has.
  std::uint64_t least_size_{0};
};

}  // namespace daqiri
