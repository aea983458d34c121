/// Frames past the page cache, straight from their buffers.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "burst/burst.h"
#include "storage/file_output.h"
#include "system/file.h"

namespace daqiri {

/// Writes with O_DIRECT, several at once. Those that lie one behind the other go in one call.
///
/// A frame whose memory and length are whole pages is held and not copied, until it is in the file.
/// One file at a time, one thread; the writes have threads of their own.
class DirectWrites {
 public:
  /// `size`: bytes of a usual write. Throws Error where there may be no more threads.
  explicit DirectWrites(std::size_t size);
  DirectWrites(const DirectWrites&) = delete;
  DirectWrites& operator=(const DirectWrites&) = delete;
  /// What is under way is finished.
  ~DirectWrites();

  /// Go on with this open file, after `wait`.
  void begin(int fd);
  /// Put `size` bytes to `offset`, a multiple of DIRECT_PAGE; up to the next such multiple, zeros
  /// follow. `owner`: the burst that the bytes belong to; null: they are copied. Waits while too
  /// many are under way. Returns errno: of this one, or of an earlier one.
  int put(std::uint64_t offset, const void* data, std::size_t size, Burst* owner) noexcept;
  /// Wait for all of them. Returns errno.
  int wait() noexcept;
  /// After `wait`: let go of the file.
  void end() noexcept;
  /// "direct"; "buffered" where a file has refused it.
  [[nodiscard]] const char* name() const noexcept { return told_ ? "buffered" : "direct"; }
  /// Since `begin`, so many writes are in the file without one before them missing.
  [[nodiscard]] std::uint64_t whole() const noexcept;

 private:
  /// Long enough for all disks of an array to have work.
  static constexpr std::size_t CALL = std::size_t{4} << 20U;
  /// While the disk is at one call, the next are ready, also where threads get their turn late.
  static constexpr std::size_t THREADS = 4;
  static constexpr std::size_t MOST = 16;

  struct FreePages {
    void operator()(std::byte* pages) const noexcept;
  };
  struct Write {
    std::uint64_t offset{0};
    /// In the file.
    std::size_t size{0};
    /// `held_bytes` of the owner's memory, then what is copied.
    Burst* owner{nullptr};
    void* held{nullptr};
    std::size_t held_bytes{0};
    std::unique_ptr<std::byte[], FreePages> copy;
    std::size_t copy_room{0};
    /// What became of it.
    bool ended{false};
    bool in_file{false};
  };

  [[nodiscard]] bool direct() const noexcept { return direct_.is_open(); }
  Write& write(std::uint64_t number) noexcept { return writes_[number % writes_.size()]; }
  /// Returns errno.
  static int fill(Write& write, const std::byte* data, std::size_t size, Burst* owner) noexcept;
  void run() noexcept;
  /// Numbers [first, end), which lie one behind the other. Returns errno.
  int perform(std::uint64_t first, std::uint64_t end) noexcept;
  /// Those that have ended are counted. Locked.
  void count_ended() noexcept;

  std::vector<Write> writes_;
  // Set while nothing is under way.
  int fd_{-1};
  /// Of the same file, with O_DIRECT.
  File direct_;
  /// That a file refuses it.
  bool told_{false};

  mutable std::mutex mutex_;  // over the next, and over `ended`
  std::condition_variable work_;
  std::condition_variable ended_;
  /// Writes so far: put, begun by a thread, ended in their order.
  std::uint64_t put_{0};
  std::uint64_t begun_{0};
  std::uint64_t ended_in_order_{0};
  std::uint64_t whole_{0};
  bool missing_{false};
  int problem_{0};
  bool stopping_{false};
  std::vector<std::jthread> threads_;
};

/// For frames of whole pages, one behind the other. A batch is one of them.
std::unique_ptr<FileOutput> direct_frames_output(std::size_t frame);

}  // namespace daqiri
