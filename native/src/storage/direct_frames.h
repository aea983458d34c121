/// Writes frames from their buffers directly to disk, without the page cache.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "burst/burst.h"
#include "storage/file_output.h"
#include "storage/write_backend.h"

namespace daqiri {

/// Writes that bypass the page cache, several at a time. Writes from host memory that are adjacent
/// in the file are combined in one call.
///
/// A frame whose memory and length are whole pages is held, not copied, until it is in the file; a
/// frame in device memory is always held. One file at a time, one calling thread; the class has its
/// own threads for writing.
class DirectWrites {
 public:
  static constexpr std::size_t MOST = 16;
  /// Limit for one call.
  static constexpr std::size_t MOST_PIECES = 2 * MOST;

  /// `size`: bytes of a usual write. Throws Error if no more threads can be started.
  explicit DirectWrites(std::size_t size, std::unique_ptr<WriteBackend> backend = direct_backend());
  DirectWrites(const DirectWrites&) = delete;
  DirectWrites& operator=(const DirectWrites&) = delete;
  /// Finishes all writes in flight.
  ~DirectWrites();

  /// Continue with this open file at `path`; waits first. Returns the error's number, 0: success.
  int begin(int fd, const std::string& path);
  /// Write `size` bytes at `offset`, which is a multiple of DIRECT_PAGE for host memory; zeros fill
  /// the last page. `owner`: the burst that holds the bytes; null: they are in host memory and are
  /// copied. Waits while too many writes are in flight. Returns the number of the error of this
  /// write or an earlier one.
  int put(std::uint64_t offset, const void* data, std::size_t size, Burst* owner) noexcept;
  /// Space in the file for this many bytes.
  [[nodiscard]] std::uint64_t taken(std::uint64_t bytes) const noexcept {
    return device_ ? bytes : whole_pages(bytes);
  }
  /// Whether the bytes of bursts are in device memory.
  [[nodiscard]] bool from_device() const noexcept { return device_; }
  /// Wait for all writes. Returns the error's number.
  int wait() noexcept;
  /// Call after `wait`: stop using the file.
  void end() noexcept;
  /// See WriteBackend.
  [[nodiscard]] const char* name() const noexcept { return backend_->name(); }
  [[nodiscard]] std::string cufile_mode() const { return backend_->cufile_mode(); }
  /// Number of writes since `begin` that are in the file, up to the first missing one.
  [[nodiscard]] std::uint64_t whole() const noexcept;

 private:
  /// Long enough to keep all disks of an array busy.
  static constexpr std::size_t CALL = std::size_t{4} << 20U;
  /// While the disk performs one call, the next are ready, even if threads are scheduled late.
  static constexpr std::size_t THREADS = 4;

  struct FreePages {
    void operator()(std::byte* pages) const noexcept;
  };
  struct Write {
    std::uint64_t offset{0};
    /// Bytes in the file.
    std::size_t size{0};
    /// First `held_bytes` of the owner's memory, then the copy.
    Burst* owner{nullptr};
    void* held{nullptr};
    std::size_t held_bytes{0};
    std::unique_ptr<std::byte[], FreePages> copy;
    std::size_t copy_room{0};
    /// The result.
    bool ended{false};
    bool in_file{false};
  };

  Write& write(std::uint64_t number) noexcept { return writes_[number % writes_.size()]; }
  /// Returns errno.
  int fill(Write& write, const std::byte* data, std::size_t size, Burst* owner) const noexcept;
  void run() noexcept;
  /// Perform writes [first, end), which are adjacent in the file. Returns the error's number.
  int perform(std::uint64_t first, std::uint64_t end) noexcept;
  /// Count completed writes. Called with the lock held.
  void count_ended() noexcept;

  const std::unique_ptr<WriteBackend> backend_;
  const bool device_{backend_->from_device()};
  std::vector<Write> writes_;
  // Set while no write is in flight.
  int fd_{-1};

  mutable std::mutex mutex_;  // for the members below, and `ended` of writes
  std::condition_variable work_;
  std::condition_variable ended_;
  /// Number of writes so far: put, begun by a thread, ended in order.
  std::uint64_t put_{0};
  std::uint64_t begun_{0};
  std::uint64_t ended_in_order_{0};
  std::uint64_t whole_{0};
  bool missing_{false};
  int problem_{0};
  bool stopping_{false};
  std::vector<std::jthread> threads_;
};

}  // namespace daqiri
