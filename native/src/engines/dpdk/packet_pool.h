/// DPDK's view of packet buffers: mbufs of memory regions, and mbufs for buffers to send.
#pragma once

#include <rte_mbuf.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engines/dpdk/traits.h"
#include "memory/region.h"

namespace daqiri::dpdk {

struct FreePool {
  void operator()(rte_mempool* pool) const noexcept;
};
using Mempool = std::unique_ptr<rte_mempool, FreePool>;

struct FreeMemory {
  void operator()(std::uint8_t* memory) const noexcept;
};
/// Memory of DPDK, which every device can read.
using DeviceMemory = std::unique_ptr<std::uint8_t, FreeMemory>;

/// Null for 0 bytes. Throws Error; `user`: for its text.
[[nodiscard]] DeviceMemory make_device_memory(std::size_t bytes, int socket,
                                              const std::string& user);

inline void set_memory(rte_mbuf& mbuf, void* memory, std::uint16_t bytes) noexcept {
  mbuf.buf_addr = memory;
  // The EAL runs with addresses that are the same for cards.
  rte_mbuf_iova_set(&mbuf, reinterpret_cast<rte_iova_t>(memory));
  mbuf.buf_len = bytes;
}

/// Mbufs whose memory is not DPDK's, and the pool to which DPDK gives them back.
struct ExternalMbufs {
  /// By number.
  std::vector<rte_mbuf*> all;
  Mempool mempool;
};

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
  /// Most buffers that are taken from the region's list together, or given to it.
  static constexpr std::uint32_t AT_ONCE = 128;
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
    /// How many there are, at least `least` if the region has so many.
    [[nodiscard]] std::uint32_t ready(std::uint32_t least) noexcept {
      if (count_ - next_ < least) {
        pool_.region_.give(numbers_.data() + next_, count_ - next_);
        refill();
      }
      return count_ - next_;
    }

   private:
    friend struct RegionOps;
    /// Mbufs that are prefetched.
    static constexpr std::uint32_t AHEAD = 4;

    /// Null: there is none.
    rte_mbuf* take() noexcept {
      if (next_ == count_ && !refill()) return nullptr;
      prefetch(*mbufs_[next_ + AHEAD]);
      return mbufs_[next_++];
    }
    /// Drivers write to both lines of the mbufs that they take. Inline: GCC leaves out calls of
    /// functions that only prefetch, because they change nothing.
    [[gnu::always_inline]] static void prefetch(const rte_mbuf& mbuf) noexcept {
      __builtin_prefetch(&mbuf, 1);
      __builtin_prefetch(static_cast<const void*>(&mbuf.next), 1);
    }
    [[gnu::noinline]] bool refill() noexcept;

    const PacketPool& pool_;
    /// That of the pool: drivers ask with it.
    const rte_mempool* mempool_;
    Stock* before_;
    /// In the order in which they were taken (see FreeList::take): those from `next_` to `count_`.
    std::uint32_t next_{0};
    std::uint32_t count_{0};
    std::array<std::uint32_t, AT_ONCE> numbers_;
    /// Their mbufs, and some more that are only prefetched.
    std::array<rte_mbuf*, AT_ONCE + AHEAD> mbufs_;
  };

  /// Tells which packets are in buffers of the region.
  class Buffers {
   public:
    Buffers(const memory::MemoryRegion& region, const rte_mempool* mempool) noexcept
        : mempool_(mempool),
          first_(static_cast<const std::byte*>(region.address(0)) - HEADROOM),
          inverse_stride_(UINT64_MAX / region.extent().stride + 1) {}

    /// Whether a whole packet is in one of them, and nothing else refers to it.
    [[nodiscard]] bool hold(const rte_mbuf& packet) const noexcept {
      // Both in one comparison.
      using Counts = std::array<std::uint16_t, 2>;
      static_assert(offsetof(rte_mbuf, nb_segs) == offsetof(rte_mbuf, refcnt) + 2);
      std::uint32_t counts = 0;
      std::memcpy(&counts, reinterpret_cast<const std::byte*>(&packet) + offsetof(rte_mbuf, refcnt),
                  sizeof counts);
      return counts == std::bit_cast<std::uint32_t>(Counts{1, 1}) && packet.pool == mempool_;
    }
    /// Number of the buffer of an mbuf of the pool. From its address: a number beside the mbuf
    /// would be one more line of memory to read.
    [[nodiscard]] std::uint32_t number_of(const rte_mbuf& packet) const noexcept {
      const auto offset =
          static_cast<std::uint64_t>(static_cast<const std::byte*>(packet.buf_addr) - first_);
      return static_cast<std::uint32_t>(Product{offset} * inverse_stride_ >> 64U);
    }

   private:
    __extension__ using Product = unsigned __int128;

    const rte_mempool* mempool_;
    /// Where the buffer of number 0 begins, with its headroom.
    const std::byte* first_;
    /// 2^64 / stride, rounded up: exact for multiples of the stride.
    std::uint64_t inverse_stride_;
  };

  /// The region has HEADROOM bytes before the data of each buffer. Throws Error.
  PacketPool(memory::MemoryRegion& region, int socket);
  PacketPool(const PacketPool&) = delete;
  PacketPool& operator=(const PacketPool&) = delete;
  /// No device uses it any longer.
  ~PacketPool();

  [[nodiscard]] rte_mempool* mempool() const noexcept { return mbufs_.mempool.get(); }
  [[nodiscard]] memory::MemoryRegion& region() const noexcept { return region_; }
  [[nodiscard]] const Buffers& buffers() const noexcept { return buffers_; }
  /// Whether an mbuf is a buffer of the region, and nothing else refers to it.
  [[nodiscard]] bool owns(const rte_mbuf& mbuf) const noexcept {
    return mbuf.pool == mempool() && rte_mbuf_refcnt_read(&mbuf) == 1;
  }
  /// The same for a whole packet.
  [[nodiscard]] bool holds(const rte_mbuf& packet) const noexcept { return buffers_.hold(packet); }
  [[nodiscard]] std::uint32_t number_of(const rte_mbuf& packet) const noexcept {
    return buffers_.number_of(packet);
  }

 private:
  friend struct RegionOps;

  memory::MemoryRegion& region_;
  Buffers buffers_;
  /// By number. Empty while DPDK makes or removes them: it moves them in and out of the list, which
  /// has nothing to do with the buffers.
  ExternalMbufs mbufs_;
};

/// Mbufs for packets to send, which refer to buffers of bursts: one thread takes them one after the
/// other, devices free them in any order and from any thread.
class SendPool {
 public:
  /// `count`: a power of two, at least 64. Throws Error; `user`: for its text.
  SendPool(std::uint32_t count, int socket, const std::string& user);
  SendPool(const SendPool&) = delete;
  SendPool& operator=(const SendPool&) = delete;
  ~SendPool();

  /// The next packet, of these pieces (at least one, none without bytes), as a chain of mbufs.
  /// Null: there are too few now.
  rte_mbuf* take(std::span<const iovec> pieces, std::uint32_t bytes) noexcept;
  /// The same for one piece.
  rte_mbuf* take(void* data, std::uint32_t bytes) noexcept {
    if (next_ - oldest_ > mask_) return nullptr;
    rte_mbuf& mbuf = make(next_, data, bytes, true);
    mbuf.pkt_len = bytes;
    ++next_;
    return &mbuf;
  }
  /// Undo `take` for the latest packet, which no device has.
  void untake(rte_mbuf& packet) noexcept;
  /// Packets that were freed, up to the first that was not. Each is told once.
  std::uint32_t release() noexcept;
  /// No device has any longer what was taken.
  void release_all() noexcept;

 private:
  friend struct SendOps;

  /// One bit per mbuf. On lines of their own, as other cores free mbufs while the sender takes.
  struct alignas(64) Word {
    /// Mbufs that were freed.
    std::atomic<std::uint64_t> freed{0};
    /// Mbufs that are the last of a packet.
    std::uint64_t last{0};
  };
  static constexpr std::uint32_t BITS = 64;
  /// Mbufs that are prefetched.
  static constexpr std::uint32_t AHEAD = 8;

  [[nodiscard]] Word& word_of(std::uint32_t number) const noexcept {
    return words_[(number & mask_) / BITS];
  }
  /// Mbuf `number`, for a piece of a packet. `last`: no more pieces follow. It is the only one of
  /// its packet, as DPDK leaves those that are freed: `next` has a line of memory of its own, which
  /// is written only for more pieces.
  rte_mbuf& make(std::uint32_t number, void* data, std::uint32_t bytes, bool last) noexcept {
    // Whoever freed it wrote to it.
    __builtin_prefetch(mbufs_.all[(number + AHEAD) & mask_], 1);
    rte_mbuf& mbuf = *mbufs_.all[number & mask_];
    set_memory(mbuf, data, static_cast<std::uint16_t>(bytes));
    // What another driver may have left.
    mbuf.data_off = 0;
    mbuf.ol_flags = RTE_MBUF_F_EXTERNAL;
    mbuf.data_len = static_cast<std::uint16_t>(bytes);
    Word& word = word_of(number);
    const std::uint64_t bit = std::uint64_t{1} << number % BITS;
    word.last = last ? word.last | bit : word.last & ~bit;
    return mbuf;
  }

  std::uint32_t mask_;
  std::unique_ptr<Word[]> words_;
  ExternalMbufs mbufs_;
  /// Numbers of the next mbuf, and of the oldest that is not released.
  std::uint32_t next_{0};
  std::uint32_t oldest_{0};
};

}  // namespace daqiri::dpdk
