/// Received frames in a kernel's ring of blocks (packet(7), TPACKET_V3).
#pragma once

#include <linux/if_packet.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engines/packet/card_timestamps.h"
#include "engines/packet/frame_ring.h"
#include "engines/packet/interface.h"
#include "engines/packet/ring_frame.h"
#include "system/file.h"

namespace daqiri::packet {

/// The ring of one socket. Frames are read in order, block by block. A block is returned to the
/// kernel after it was read and every frame kept in it was freed; the buffer number of a kept frame
/// is the number of its block.
///
/// The kernel fills the blocks in turn: it drops frames while the next block is still in use.
class ReceiveRing final : public FrameRing {
 public:
  /// Each block that the kernel releases wakes the poller, so large rings have large blocks.
  static constexpr std::uint32_t LEAST_BLOCK_BYTES = 256U << 10U;
  static constexpr std::uint32_t MOST_BLOCK_BYTES = 2U << 20U;
  static constexpr std::uint32_t FEWEST_BLOCKS = 32;
  static constexpr std::uint64_t FEWEST_BYTES = std::uint64_t{FEWEST_BLOCKS} * LEAST_BLOCK_BYTES;

  /// Opens a ring of about `bytes`, which `begin` lets frames into. The kernel releases a block
  /// when it is full, or after `patience_ms`. `timestamps`: times are those of the card; null: of
  /// the kernel. Throws Error.
  ReceiveRing(const NetworkInterface& interface, std::uint64_t bytes, std::uint32_t patience_ms,
              std::shared_ptr<const CardTimestamps> timestamps);
  ~ReceiveRing() override;

  /// Receive frames of the interface: those that match `filter`, unless it is empty. `in_group`:
  /// the socket is one of several (PACKET_FANOUT). Throws Error.
  void begin(const std::string& filter, bool in_group);
  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }

  [[nodiscard]] std::vector<int> fds() const override { return {fd()}; }
  [[nodiscard]] std::string path() const override { return "af_packet"; }
  [[nodiscard]] bool takes_every_frame() const noexcept override { return true; }
  [[nodiscard]] std::uint64_t gathers_ns() const noexcept override { return GATHERS_NS; }
  [[nodiscard]] bool gathered() const noexcept override { return true; }

  // --- Poller.

  Frame peek() noexcept override;
  void advance() noexcept override;
  void complete_checksum() noexcept override;
  /// If its block is not nearly empty, and at least half of the ring's blocks belong to the kernel.
  /// Otherwise a few frames would occupy many blocks.
  [[nodiscard]] bool worth_keeping() const noexcept override { return filled_ && has_room_; }
  [[nodiscard]] bool has_room() const noexcept override { return has_room_; }
  std::uint32_t keep(std::uint32_t times) noexcept override;
  /// Whether the next block is still in use.
  [[nodiscard]] bool waits_for_memory() const noexcept override {
    return !reading_ && uses_[block_].load(std::memory_order_relaxed) != 0;
  }
  std::uint32_t take_drops() noexcept override;
  int take_error() noexcept override;
  [[nodiscard]] bool lacks_card_times() const noexcept override { return lacks_card_times_; }
  /// The last frames can be read after the kernel has released their block.
  void stop_arrivals() noexcept override;

  void stop() noexcept override;

  /// Any thread.
  void give(const std::uint32_t* buffers, std::uint32_t n) noexcept override;

 private:
  [[nodiscard]] std::size_t bytes() const noexcept { return std::size_t{blocks_} * buf_size(); }
  [[nodiscard]] tpacket_hdr_v1& header(std::uint32_t block) const noexcept;
  /// Remove one or more uses of the block.
  void let_go(std::uint32_t block, std::uint32_t times) noexcept;
  bool open_block() noexcept;
  /// Go on to the next frame that arrived from elsewhere. Returns false if there is none.
  bool find_frame() noexcept;
  /// Pass by the frame at `frame_`.
  void step() noexcept;
  void unmap() noexcept;

  NetworkInterface interface_;
  /// A child made by fork(2) has no access to the ring.
  pid_t process_{getpid()};
  File socket_;
  std::shared_ptr<const CardTimestamps> timestamps_;
  /// Whether the kernel tells what the senders of frames left to their card.
  bool with_offload_{false};
  std::uint32_t blocks_;
  std::byte* ring_{nullptr};
  /// Uses of each block: the poller while it reads the block, frames kept there, and one more while
  /// there are any; 0: the block belongs to the kernel.
  std::unique_ptr<std::atomic<std::uint32_t>[]> uses_;
  /// Number of blocks in use.
  std::atomic<std::uint32_t> used_{0};

  // --- Poller.
  std::uint32_t block_{0};
  std::uint32_t left_{0};
  std::byte* frame_{nullptr};
  /// The frame of `peek`; without data: the next one was not read yet. If it is cut, of its parts.
  Frame present_;
  RingFrame whole_;
  CutFrame parts_;
  bool reading_{false};
  bool lacks_card_times_{false};
  /// State of the block, and of the ring when the block was opened.
  bool filled_{false};
  bool has_room_{false};
};

}  // namespace daqiri::packet
