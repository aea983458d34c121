/// Past the page cache.
#pragma once

#include <liburing.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "storage/file_output.h"
#include "storage/room_ahead.h"

namespace daqiri {

/// O_DIRECT writes of large aligned blocks, several under way at a time (io_uring). What packets
/// hold is copied to the blocks; the rest of the way is the disk's own work.
class DirectOutput final : public FileOutput {
 public:
  /// Null, and `why_not` says why, where the file system of `directory` or the kernel has no such
  /// writes.
  static std::unique_ptr<DirectOutput> make(const std::string& directory, std::string& why_not);
  ~DirectOutput() override;

  [[nodiscard]] const char* name() const noexcept override { return "direct"; }
  int begin(int fd, const FileTally& whole) noexcept override;
  int put(RecordBatch& batch) noexcept override;
  int settle() noexcept override;

 private:
  static constexpr std::size_t BLOCK = std::size_t{1} << 20U;
  static constexpr std::size_t NUM_BLOCKS = 8;
  /// Of addresses, lengths and offsets; what any disk accepts.
  static constexpr std::size_t ALIGNMENT = 4096;

  struct Block {
    std::byte* data{nullptr};
    std::uint64_t offset{0};
    /// What is whole once this block and all before it are in the file.
    FileTally after;
    bool under_way{false};
    bool failed{false};
  };

  explicit DirectOutput(const io_uring& ring) : ring_(ring) {}

  [[nodiscard]] Block& block(std::uint64_t number) noexcept { return blocks_[number % NUM_BLOCKS]; }
  void submit() noexcept;
  void reap(bool wait) noexcept;
  void landed(Block& block, int result) noexcept;
  void fail(int problem) noexcept;

  io_uring ring_;
  bool registered_{false};
  std::array<Block, NUM_BLOCKS> blocks_{};
  std::unique_ptr<std::byte, void (*)(void*)> memory_{nullptr, nullptr};
  int fd_{-1};
  FileTally taken_;
  /// Blocks [oldest_, filling_) are under way, `filling_` is being filled.
  std::uint64_t oldest_{0};
  std::uint64_t filling_{0};
  /// Bytes in it.
  std::size_t filled_{0};
  RoomAhead room_;
  int problem_{0};
  /// A block failed: what lies behind it is not whole.
  bool torn_{false};
};

}  // namespace daqiri
