/// Received frames in a kernel's ring of blocks (packet(7), TPACKET_V3).
#pragma once

#include <linux/if_packet.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engines/packet/frame_ring.h"
#include "engines/packet/interface.h"
#include "system/file.h"

namespace daqiri::packet {

/// The ring of one socket. Frames are read in their order, block by block. A block is the kernel's
/// again once it has been read and every frame that was kept in it has been given back; the number
/// of a kept frame's buffer is that of its block.
///
/// The kernel fills the blocks in turn: it drops frames from when the next block is still in use.
class ReceiveRing final : public FrameRing {
 public:
  /// Each block that the kernel hands over wakes the poller: large rings have large ones.
  static constexpr std::uint32_t LEAST_BLOCK_BYTES = 256U << 10U;
  static constexpr std::uint32_t MOST_BLOCK_BYTES = 2U << 20U;
  static constexpr std::uint32_t FEWEST_BLOCKS = 32;

  /// A ring of about `bytes`, of an interface whose frames it sees from here on: those that
  /// `filter` matches, unless it is empty. The kernel hands a block over when it is full, or
  /// `patience_ms` after the last one. Throws Error.
  ReceiveRing(const NetworkInterface& interface, const std::string& filter, std::uint64_t bytes,
              std::uint32_t patience_ms);
  ~ReceiveRing() override;

  [[nodiscard]] std::vector<int> fds() const override { return {fd()}; }
  [[nodiscard]] std::string path() const override { return "af_packet"; }
  [[nodiscard]] std::uint64_t gathers_ns() const noexcept override { return GATHERS_NS; }
  [[nodiscard]] bool gathered() const noexcept override { return true; }

  // --- Poller.

  Frame peek() noexcept override;
  void advance() noexcept override;
  /// Where its block is not nearly empty, and half of the ring's blocks are the kernel's. Few
  /// frames would use up blocks that are.
  [[nodiscard]] bool worth_keeping() const noexcept override { return filled_ && has_room_; }
  [[nodiscard]] bool has_room() const noexcept override { return has_room_; }
  std::uint32_t keep(std::uint32_t times) noexcept override;
  /// Whether the block that is read next is still in use.
  [[nodiscard]] bool waits_for_memory() const noexcept override {
    return !reading_ && uses_[block_].load(std::memory_order_relaxed) != 0;
  }
  std::uint32_t take_drops() noexcept override;
  int take_error() noexcept override;
  /// The last of what the ring has can be read once its block has been handed over.
  void stop_arrivals() noexcept override { rebind_packet_socket(socket_, interface_, 0); }

  void stop() noexcept override;

  /// Any thread.
  void give(const std::uint32_t* buffers, std::uint32_t n) noexcept override;

 private:
  /// Readable when a block can be read.
  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return std::size_t{blocks_} * buf_size(); }
  [[nodiscard]] tpacket_hdr_v1& header(std::uint32_t block) const noexcept;
  /// One or more less that use the block.
  void let_go(std::uint32_t block, std::uint32_t times) noexcept;
  bool open_block() noexcept;

  NetworkInterface interface_;
  /// A child made by fork(2) has neither the ring nor a say in it.
  pid_t process_{getpid()};
  File socket_;
  std::uint32_t blocks_;
  std::byte* ring_{nullptr};
  /// By block: the poller while it reads the block, and frames kept there, and one more as long as
  /// there are any; 0: it is the kernel's.
  std::unique_ptr<std::atomic<std::uint32_t>[]> uses_;
  /// Blocks that somebody uses.
  std::atomic<std::uint32_t> used_{0};

  // --- Poller.
  std::uint32_t block_{0};
  std::uint32_t left_{0};
  std::byte* frame_{nullptr};
  bool reading_{false};
  /// The block, and of the ring when it was opened.
  bool filled_{false};
  bool has_room_{false};
};

}  // namespace daqiri::packet
