/// A file of chunks as the HDF5 library sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "storage/direct_frames.h"
#include "storage/hdf5_file.h"

namespace daqiri {

/// Frames can have pages of their own, which are written directly; the rest goes through the page
/// cache.
class ChunkFile final : public hdf5::Storage {
 public:
  /// With frames that are written directly, what the library writes itself lies together, in blocks
  /// of so many bytes; longer pieces have pages of their own.
  static constexpr std::uint64_t BLOCK = std::uint64_t{64} << 10U;
  static constexpr std::uint64_t LONG = BLOCK / 4;
  /// The most that a file grows by for each of many pieces of so many bytes, beside a block.
  static constexpr std::uint64_t taken(std::uint64_t bytes) noexcept {
    // The end of a block that a piece does not fit in is left empty.
    return bytes >= LONG ? whole_pages(bytes) : bytes + bytes / 3 + 1;
  }

  /// A new file. When frames are written there is room for so many `spare` bytes more: what the
  /// library writes later, to tell where frames are. `direct`: what writes frames, in pages of
  /// their own; null: they go where the library puts them.
  ChunkFile(int fd, std::uint64_t spare, DirectWrites* direct);
  /// A file that is there.
  explicit ChunkFile(int fd);

  /// From now on nothing is written, and no error is told.
  void give_up() noexcept { given_up_ = true; }
  /// What is written next is a frame, or not. `owner`: the burst that it is of, or null.
  void expect_frame(bool expected, Burst* owner = nullptr) noexcept {
    frame_expected_ = expected;
    owner_ = owner;
  }
  /// Of what failed first; 0: nothing.
  [[nodiscard]] int problem() const noexcept { return problem_; }
  /// A direct write failed after it was taken.
  void note(int problem) noexcept { fail(problem); }
  /// Free what was allocated in advance. Returns errno.
  int trim() noexcept;
  /// Room for frames up to `end`, and for what is to be spared. Returns errno.
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
  int put(haddr_t at, const void* from, std::size_t bytes) noexcept;
  int allocate_blocks(std::uint64_t end) noexcept;
  bool fail(int problem) noexcept {
    if (problem_ == 0) problem_ = problem;
    return false;
  }

  int fd_;
  haddr_t size_{0};
  std::uint64_t spare_;
  DirectWrites* direct_;
  std::uint64_t limit_{NO_LIMIT};
  std::uint64_t reserved_{0};
  int problem_{0};
  bool given_up_{false};
  bool frame_expected_{false};
  Burst* owner_{nullptr};
  /// Of the latest block.
  haddr_t block_next_{0};
  haddr_t block_end_{0};
};

}  // namespace daqiri
