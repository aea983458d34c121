/// Past the page cache.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "storage/file_output.h"

namespace daqiri {

/// O_DIRECT writes of aligned blocks. What packets hold is copied to a ring of blocks; a thread
/// writes the blocks that are full, all that lie together in one call, one call at a time: the file
/// grows in the order of its bytes, and never has a hole.
class DirectOutput final : public FileOutput {
 public:
  /// Null, and `why_not` says why, where the file system of `directory` has no such writes.
  static std::unique_ptr<DirectOutput> make(const std::string& directory, std::string& why_not);
  ~DirectOutput() override;

  [[nodiscard]] const char* name() const noexcept override { return "direct"; }
  int begin(int fd, const FileTally& whole) noexcept override;
  int put(RecordBatch& batch) noexcept override;
  int sync() noexcept override;

 private:
  static constexpr std::size_t BLOCK = std::size_t{1} << 20U;
  static constexpr std::size_t NUM_BLOCKS = 8;
  /// Of addresses, lengths and offsets; what any disk accepts.
  static constexpr std::size_t ALIGNMENT = 4096;

  DirectOutput();

  [[nodiscard]] std::byte* block(std::uint64_t number) const noexcept {
    return memory_.get() + number % NUM_BLOCKS * BLOCK;
  }
  [[nodiscard]] std::uint64_t offset_of(std::uint64_t number) const noexcept {
    return origin_ + number * BLOCK;
  }
  /// The block that is being filled is full; all packets of `after` are in it and those before it.
  void hand_over(const FileTally& after) noexcept;
  /// Wait for the thread to write all blocks that are full. Returns errno.
  int drain() noexcept;
  void run() noexcept;
  /// Write `count` full blocks from number `first` on. Returns how many are in the file, and errno.
  std::uint64_t write_blocks(std::uint64_t first, std::uint64_t count, int& problem) noexcept;

  std::unique_ptr<std::byte, void (*)(void*)> memory_{nullptr, nullptr};
  // Set while the thread has nothing to write.
  int fd_{-1};
  /// Of block 0 in the file, aligned.
  std::uint64_t origin_{0};

  // The caller's.
  FileTally taken_;
  std::uint64_t filling_{0};
  /// Bytes in that block.
  std::size_t filled_{0};

  std::mutex mutex_;  // over the next
  std::condition_variable changed_;
  std::array<FileTally, NUM_BLOCKS> after_;
  /// Blocks [written_, full_) wait for the thread.
  std::uint64_t full_{0};
  std::uint64_t written_{0};
  /// Up to the end of block `written_` - 1.
  FileTally in_file_;
  int problem_{0};
  bool writing_{false};
  bool stopping_{false};
  std::thread thread_;
};

}  // namespace daqiri
