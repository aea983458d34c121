/// A chunked file as the HDF5 library sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "storage/direct_frames.h"
#include "storage/hdf5_file.h"

namespace daqiri {

/// Frames can have their own pages, which are written directly; all other data go through the page
/// cache.
class ChunkFile final : public hdf5::Storage {
 public:
  /// If frames are written directly, the library's own data are in blocks of this many bytes;
  /// longer pieces have their own pages.
  static constexpr std::uint64_t BLOCK = std::uint64_t{64} << 10U;
  static constexpr std::uint64_t LONG = BLOCK / 4;
  /// The most that a file grows by, in addition to one block, for each of many pieces of this many
  /// bytes.
  static constexpr std::uint64_t taken(std::uint64_t bytes) noexcept {
    // The end of a block is left empty if a piece does not fit into it.
    return bytes >= LONG ? whole_pages(bytes) : bytes + bytes / 3 + 1;
  }

  /// A new file. `spare`: bytes that are always reserved in addition to frames, for index data that
  /// the library writes later. `direct`: writes frames, in their own pages; null: frames go where
  /// the library puts them.
  ChunkFile(int fd, std::uint64_t spare, DirectWrites* direct);
  /// An existing file.
  explicit ChunkFile(int fd);

  /// From now on, write nothing and report no error.
  void give_up() noexcept { given_up_ = true; }
  [[nodiscard]] bool given_up() const noexcept { return given_up_; }
  /// The library closes its objects: an error is not reported to it, which would keep their memory
  /// for ever, but gives up.
  void expect_close() noexcept { closes_ = true; }
  /// The next write is a frame of so many bytes: it is noted, and done by `write_frame`. The
  /// library's one lock is not held then, so that recorders write at the same time. Returns errno
  /// if there is no space for it, before the library allocates it.
  int expect_frame(std::size_t bytes) noexcept;
  /// Write the noted frame. `owner`: the burst that contains it, or null. Returns errno.
  int write_frame(const void* frame, Burst* owner) noexcept;
  /// errno of the first failure; 0: none.
  [[nodiscard]] int problem() const noexcept { return problem_; }
  /// A direct write failed after `write` had accepted it.
  void note(int problem) noexcept { fail(problem); }
  /// Free disk blocks that were allocated in advance. Returns errno.
  int trim() noexcept;
  /// Reserve space for frames up to `end`, and for the spare bytes. Returns errno.
  int reserve(std::uint64_t end) noexcept;

  haddr_t allocate(H5FD_mem_t type, hsize_t bytes) noexcept override;
  bool read(haddr_t at, void* to, std::size_t bytes) noexcept override;
  bool write(H5FD_mem_t type, haddr_t at, const void* from, std::size_t bytes) noexcept override;
  bool truncate() noexcept override;
  [[nodiscard]] haddr_t size() const noexcept override { return size_; }

 private:
  static constexpr std::uint64_t NO_LIMIT = std::numeric_limits<std::uint64_t>::max();

  [[nodiscard]] bool is_frame(H5FD_mem_t type) const noexcept {
    return frame_expected_ && type == H5FD_MEM_DRAW;
  }
  haddr_t allocate_pages(hsize_t bytes) noexcept;
  /// Both return errno.
  int put(haddr_t at, const void* from, std::size_t bytes, Burst* owner) noexcept;
  int allocate_blocks(std::uint64_t end) noexcept;
  bool fail(int problem) noexcept {
    if (problem_ == 0) problem_ = problem;
    given_up_ = given_up_ || closes_;
    return closes_;
  }

  int fd_;
  haddr_t size_{0};
  std::uint64_t spare_;
  DirectWrites* direct_;
  std::uint64_t limit_{NO_LIMIT};
  std::uint64_t reserved_{0};
  int problem_{0};
  bool given_up_{false};
  bool closes_{false};
  bool frame_expected_{false};
  struct Extent {
    haddr_t at;
    std::size_t bytes;
  };
  std::optional<Extent> noted_;
  /// Next byte and end of the latest block.
  haddr_t block_next_{0};
  haddr_t block_end_{0};
};

}  // namespace daqiri
