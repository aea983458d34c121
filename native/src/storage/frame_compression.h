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

/// bitshuffle and LZ4: the HDF5 filter 32008, computed by its plugin `libh5bshuf.so`. Python's
/// hdf5plugin and Linux distributions contain the plugin; all of them read each other's data.
class BitshuffleLz4 {
 public:
  static constexpr H5Z_filter_t ID = 32008;

  /// Load the plugin from `directory`; empty: from HDF5_PLUGIN_PATH or HDF5's default folders. It
  /// is loaded once. Throws Error NOT_SUPPORTED with the package to install.
  static const BitshuffleLz4& load(const std::string& directory);

  /// Compress chunks of datasets made with these creation properties. Throws Error.
  void add_to(hid_t creation) const;
  /// Upper bound of the result of `compress` for `size` bytes.
  [[nodiscard]] std::size_t bound(std::size_t size, std::size_t element) const noexcept;
  /// Compress `size` bytes, a multiple of `element`, to a chunk. Returns the number of bytes in
  /// `to`; 0: out of memory. Any thread.
  std::size_t compress(const void* from, std::size_t size, std::size_t element,
                       std::byte* to) const noexcept;

 private:
  explicit BitshuffleLz4(void* plugin);

  // Declared in bitshuffle.h.
  std::size_t (*bound_)(std::size_t, std::size_t, std::size_t);
  std::size_t (*block_size_)(std::size_t);
  std::int64_t (*compress_)(const void*, void*, std::size_t, std::size_t, std::size_t);
};

/// Compresses frames on several threads and returns them in the order in which they were put. The
/// number of frames in progress, and their memory, is limited. Used by one thread.
class FrameCompressor {
 public:
  /// Throws Error INVALID_PARAMETER unless the number of threads is 1 to 64.
  static void require_threads(std::uint32_t threads);
  /// `frame`, `element`: their size in bytes. Throws Error NO_SPACE_AVAILABLE if memory is
  /// exhausted.
  FrameCompressor(const BitshuffleLz4& filter, std::size_t frame, std::size_t element,
                  std::uint32_t threads);
  FrameCompressor(const FrameCompressor&) = delete;
  FrameCompressor& operator=(const FrameCompressor&) = delete;
  /// Frames in progress are discarded.
  ~FrameCompressor();

  [[nodiscard]] const BitshuffleLz4& filter() const noexcept { return filter_; }
  [[nodiscard]] bool full() const noexcept { return put_ - taken_ == slots_.size(); }
  [[nodiscard]] bool empty() const noexcept { return put_ == taken_; }
  /// Compress the frame in the burst, which is held until this is done. Must not be full.
  void put(Burst& frame) noexcept;
  /// Whether the oldest frame is compressed. Must not be empty.
  bool ready() noexcept;
  /// Wait for the oldest frame and return it; no bytes: out of memory. Must not be empty.
  std::span<const std::byte> front() noexcept;
  void pop() noexcept { ++taken_; }
  /// Discard all frames.
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
  /// Number of frames put and popped so far. Used by the caller only.
  std::uint64_t put_{0};
  std::uint64_t taken_{0};

  std::mutex mutex_;  // for the members below, and `frame` and `done` of slots
  std::condition_variable work_;
  std::condition_variable done_;
  std::uint64_t given_{0};
  std::uint64_t begun_{0};
  bool stopping_{false};
  std::vector<std::jthread> threads_;
};

}  // namespace daqiri
