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

/// Writes that go past the page cache, several at once. Those from the host's memory that lie one
/// behind the other go in one call.
///
/// A frame whose memory and length are whole pages is held and not copied, until it is in the file;
/// one in device memory always is. One file at a time, one thread; the writes have threads of their
/// own.
class DirectWrites {
 public:
  static constexpr std::size_t MOST = 16;
  /// Of a call.
  static constexpr std::size_t MOST_PIECES = 2 * MOST;

  /// `size`: bytes of a usual write. `apart`: no page has bytes of two writes; else they are done
  /// one after the other. Throws Error where there may be no more threads.
  explicit DirectWrites(std::size_t size, std::unique_ptr<WriteBackend> backend = direct_backend(),
                        bool apart = true);
  DirectWrites(const DirectWrites&) = delete;
  DirectWrites& operator=(const DirectWrites&) = delete;
  /// What is under way is finished.
  ~DirectWrites();

  /// Go on with this open file, which has that path, after `wait`. Returns the error's number, 0:
  /// fine.
  int begin(int fd, const std::string& path);
  /// Put `size` bytes to `offset`. From the host's memory, that is a multiple of DIRECT_PAGE, and
  /// zeros follow up to the next. `owner`: the burst that the bytes belong to; null: they are the
  /// host's, and copied. Waits while too many are under way. Returns the error's number: of this
  /// one, or of an earlier one.
  int put(std::uint64_t offset, const void* data, std::size_t size, Burst* owner) noexcept;
  /// What so many bytes take in the file.
  [[nodiscard]] std::uint64_t taken(std::uint64_t bytes) const noexcept {
    return device_ ? bytes : whole_pages(bytes);
  }
  /// Whether bytes of a burst are in device memory.
  [[nodiscard]] bool from_device() const noexcept { return device_; }
  /// Wait for all of them. Returns the error's number.
  int wait() noexcept;
  /// After `wait`: let go of the file.
  void end() noexcept;
  /// As those of the backend.
  [[nodiscard]] const char* name() const noexcept { return backend_->name(); }
  [[nodiscard]] std::string cufile_mode() const { return backend_->cufile_mode(); }
  /// Since `begin`, so many writes are in the file without one before them missing.
  [[nodiscard]] std::uint64_t whole() const noexcept;

 private:
  /// Long enough for all disks of an array to have work.
  static constexpr std::size_t CALL = std::size_t{4} << 20U;
  /// While the disk is at one call, the next are ready, also where threads get their turn late.
  static constexpr std::size_t THREADS = 4;

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

  Write& write(std::uint64_t number) noexcept { return writes_[number % writes_.size()]; }
  /// Returns errno.
  int fill(Write& write, const std::byte* data, std::size_t size, Burst* owner) const noexcept;
  void run() noexcept;
  /// Numbers [first, end), which lie one behind the other. Returns the error's number.
  int perform(std::uint64_t first, std::uint64_t end) noexcept;
  /// Those that have ended are counted. Locked.
  void count_ended() noexcept;

  const std::unique_ptr<WriteBackend> backend_;
  const bool device_{backend_->from_device()};
  std::vector<Write> writes_;
  // Set while nothing is under way.
  int fd_{-1};

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

/// For frames one behind the other: of whole pages, or of device memory. A batch is one of them.
std::unique_ptr<FileOutput> direct_frames_output(
    std::size_t frame, std::unique_ptr<WriteBackend> backend = direct_backend());

}  // namespace daqiri
