/// DPDK's view of packet buffers: mbufs of memory regions, and mbufs for buffers to send.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engines/dpdk/traits.h"
#include "memory/region.h"

namespace daqiri::dpdk {

struct FreePool {
  void operator()(rte_mempool* pool) const noexcept;
};
using Mempool = std::unique_ptr<rte_mempool, FreePool>;

/// A pool of mbufs without memory for packets, which is attached to them. Throws Error; `user`: for
/// its text.
[[nodiscard]] Mempool make_header_pool(std::uint32_t mbufs, int socket, const std::string& user);

struct FreeMemory {
  void operator()(std::uint8_t* memory) const noexcept;
};
/// Memory of DPDK, which every device can read.
using DeviceMemory = std::unique_ptr<std::uint8_t, FreeMemory>;

/// Null for 0 bytes. Throws Error; `user`: for its text.
[[nodiscard]] DeviceMemory make_device_memory(std::size_t bytes, int socket,
                                              const std::string& user);

/// The buffers of a memory region as mbufs, for devices to receive into.
///
/// An mbuf has the number of its buffer, and DPDK takes and frees mbufs by number in the region's
/// own list. So a packet that was delivered belongs to the region alone, whose owner frees it with
/// MemoryRegion::give: bursts need neither this object nor DPDK.
class PacketPool {
 public:
  /// Bytes before a packet.
  static constexpr std::size_t HEADROOM = dpdk::HEADROOM;
  static_assert(HEADROOM == RTE_PKTMBUF_HEADROOM);
  /// Longest buffer of a region.
  static constexpr std::size_t MOST_BYTES = UINT16_MAX - HEADROOM;

  /// Buffers for the packets that this thread reads from devices while it exists. Most drivers take
  /// one for each packet, and other threads give to the list meanwhile.
  class Stock {
   public:
    explicit Stock(const PacketPool& pool) noexcept;
    Stock(const Stock&) = delete;
    Stock& operator=(const Stock&) = delete;
    /// Gives back what was not used.
    ~Stock();

   private:
    friend struct RegionOps;
    /// Null: there is none.
    rte_mbuf* take() noexcept;

    static constexpr std::uint32_t MOST = 64;

    const PacketPool& pool_;
    Stock* before_;
    std::uint32_t count_{0};
    std::array<std::uint32_t, MOST> numbers_;
  };

  /// The region has HEADROOM bytes before the data of each buffer. Throws Error.
  PacketPool(memory::MemoryRegion& region, int socket);
  PacketPool(const PacketPool&) = delete;
  PacketPool& operator=(const PacketPool&) = delete;
  /// No device uses it any longer.
  ~PacketPool();

  [[nodiscard]] rte_mempool* mempool() const noexcept { return mempool_.get(); }
  [[nodiscard]] memory::MemoryRegion& region() const noexcept { return region_; }
  /// Whether the packet is one buffer of the region, and nothing else refers to it.
  [[nodiscard]] bool holds(const rte_mbuf& packet) const noexcept {
    return packet.pool == mempool_.get() && packet.nb_segs == 1 &&
           rte_mbuf_refcnt_read(&packet) == 1 && packet.buf_addr == beginning_of(number_of(packet));
  }
  /// Number of the buffer of a packet that it holds.
  [[nodiscard]] static std::uint32_t number_of(const rte_mbuf& packet) noexcept {
    return private_of(packet).number;
  }

 private:
  friend struct RegionOps;
  /// After each mbuf.
  struct Private {
    rte_mbuf_ext_shared_info shared;
    std::uint32_t number;
  };

  static Private& private_of(const rte_mbuf& packet) noexcept {
    return *static_cast<Private*>(rte_mbuf_to_priv(const_cast<rte_mbuf*>(&packet)));
  }
  [[nodiscard]] std::byte* beginning_of(std::uint32_t number) const noexcept {
    return static_cast<std::byte*>(region_.address(number)) - HEADROOM;
  }
  void set_up(rte_mbuf& mbuf, std::uint32_t number) noexcept;

  memory::MemoryRegion& region_;
  /// By number. Empty while DPDK makes or removes them: it moves them in and out of the list, which
  /// has nothing to do with the buffers.
  std::vector<rte_mbuf*> mbufs_;
  Mempool mempool_;
};

}  // namespace daqiri::dpdk
