/// A ring of AF_PACKET, read block by block.
#pragma once

#include <poll.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "peers/frames.h"

namespace bench {

inline constexpr unsigned RING_BLOCK_BYTES = 256 << 10;
inline constexpr unsigned RING_FRAME_BYTES = 2048;
/// Timeout after which the kernel passes on a partly filled block, in ms.
inline constexpr unsigned RING_PATIENCE = 5;

/// The ring of a packet socket, TPACKET_V3.
class PacketRing {
 public:
  PacketRing(const char* device, std::size_t bytes)
      : blocks_(static_cast<unsigned>(bytes / RING_BLOCK_BYTES)) {
    fd_ = check(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), "socket");
    const int version = TPACKET_V3;
    check(setsockopt(fd_, SOL_PACKET, PACKET_VERSION, &version, sizeof version), "PACKET_VERSION");
    tpacket_req3 request{};
    request.tp_block_size = RING_BLOCK_BYTES;
    request.tp_block_nr = blocks_;
    request.tp_frame_size = RING_FRAME_BYTES;
    request.tp_frame_nr = RING_BLOCK_BYTES / RING_FRAME_BYTES * blocks_;
    request.tp_retire_blk_tov = RING_PATIENCE;
    check(setsockopt(fd_, SOL_PACKET, PACKET_RX_RING, &request, sizeof request), "PACKET_RX_RING");
    void* mapped = mmap(nullptr, std::size_t{blocks_} * RING_BLOCK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED, fd_, 0);
    if (mapped == MAP_FAILED) fail("mmap");
    base_ = static_cast<std::uint8_t*>(mapped);
    bind_to_device(fd_, device, ETH_P_ALL);
  }

  /// Calls `each` with the frames of the next block.
  template <typename Each>
  void read_block(Each each) {
    tpacket_hdr_v1& block =
        reinterpret_cast<tpacket_block_desc*>(base_ + std::size_t{next_} * RING_BLOCK_BYTES)
            ->hdr.bh1;
    std::atomic_ref<std::uint32_t> status(block.block_status);
    while ((status.load(std::memory_order_acquire) & TP_STATUS_USER) == 0) {
      pollfd ready{fd_, POLLIN, 0};
      poll(&ready, 1, -1);
    }
    auto* at = reinterpret_cast<std::uint8_t*>(&block) - offsetof(tpacket_block_desc, hdr) +
               block.offset_to_first_pkt;
    for (std::uint32_t i = 0; i < block.num_pkts; ++i) {
      const auto& frame = *reinterpret_cast<const tpacket3_hdr*>(at);
      each(frame);
      at += frame.tp_next_offset;
    }
    status.store(TP_STATUS_KERNEL, std::memory_order_release);
    next_ = next_ + 1 == blocks_ ? 0 : next_ + 1;
  }

  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_{-1};
  unsigned blocks_;
  unsigned next_{0};
  std::uint8_t* base_{nullptr};
};

}  // namespace bench
