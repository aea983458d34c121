/// Compresses frames on separate threads.
#pragma once

#include <hdf5.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "burst/burst.h"

namespace daqiri {

/// bitshuffle and LZ4, the HDF5 filter 32008, as its plugin `libh5bshuf.so` computes it. The plugin
/// comes with Python's hdf5plugin and with Linux distributions; any of them reads what another has
/// written.
class BitshuffleLz4 {
 public:
  static constexpr H5Z_filter_t ID = 32008;

  /// The plugin in `directory`; empty: in HDF5_PLUGIN_PATH, or where HDF5 has its plugins. It is
  /// loaded once. Throws Error NOT_SUPPORTED, which says what to install.
  static const BitshuffleLz4& load(const std::string& directory);

  /// Chunks of datasets made with these creation properties are compressed so. Throws Error.
  void add_to(hid_t creation) const;
  /// Most bytes that `compress` makes of `size` bytes.
  [[nodiscard]] std::size_t bound(std::size_t size, std::size_t element) const noexcept;
  /// Make a chunk of `size` bytes, a multiple of `element`. Returns the bytes in `to`; 0: there is
  /// no memory. Any thread.
  std::size_t compress(const void* from, std::size_t size, std::size_t element,
                       std::byte* to) const noexcept;

 private:
  explicit BitshuffleLz4(void* plugin);

  // bitshuffle.h
  std::size_t (*bound_)(std::size_t, std::size_t, std::size_t);
  std::size_t (*block_size_)(std::size_t);
  std::int64_t (*compress_)(const void*, void*, std::size_t, std::size_t, std::size_t);
};

/// Compresses frames on several threads; they come back in the order in which they were put. What
/// is on its way is bounded, and so is its memory. Used by one thread.
class FrameCompressor {
 public:
  /// Throws Error INVALID_PARAMETER for a number of threads that is not from 1 to 64.
  static void require_threads(std::uint32_t threads);
  /// `frame`, `element`: bytes of them. Throws Error NO_SPACE_AVAILABLE where there is no memory.
  FrameCompressor(const BitshuffleLz4& filter, std::size_t frame, std::size_t element,
                  std::uint32_t threads);
  FrameCompressor(const FrameCompressor&) = delete;
  FrameCompressor& operator=(const FrameCompressor&) = delete;
  /// What has not come back is given up.
  ~FrameCompressor();

  [[nodiscard]] const BitshuffleLz4& filter() const noexcept { return filter_; }
  [[nodiscard]] bool full() const noexcept { return put_ - taken_ == slots_.size(); }
  [[nodiscard]] bool empty() const noexcept { return put_ == taken_; }
  /// Compress the frame in the burst, which is held only until that is done. Not when full.
  void put(Burst& frame) noexcept;
  /// Whether the frame that was put first is done. Not when empty.
  bool ready() noexcept;
  /// That frame, once it is done; no bytes: there was no memory. Not when empty.
  std::span<const std::byte> front() noexcept;
  void pop() noexcept { ++taken_; }
  /// Forget what is on its way.
  void clear() noexcept;

 private:
  struct Slot {
    Burst* frame{nullptr};
    std::unique_ptr<std::byte[]> space;
    std::size_t size{0};
    bool done{false};
  };

  Slot& slot(std::uint64_t number) noexcept { return slots_[number % slots_.size()]; }
  void run() noexcept;

  const BitshuffleLz4& filter_;
  const std::size_t frame_;
  const std::size_t element_;
  std::vector<Slot> slots_;
  /// Frames so far: put, and taken away again. Of the one thread.
  std::uint64_t put_{0};
  std::uint64_t taken_{0};

  std::mutex mutex_;  // over the next, and over `frame` and `done` of slots
  std::condition_variable work_;
  std::condition_variable done_;
  std::uint64_t given_{0};
  std::uint64_t begun_{0};
  bool stopping_{false};
  std::vector<std::jthread> threads_;
};

}  // namespace daqiri
