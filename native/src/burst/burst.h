/// Bursts inside the engine: their buffers and their current owner.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "daqiri/burst.h"
#include "daqiri/reorder.h"
#include "memory/buffers.h"

namespace daqiri {

class BurstPool;
struct SessionMemory;

enum class BurstState : std::uint8_t { FREE, ENGINE, APPLICATION };

inline constexpr std::uint32_t NO_BUFFER = 0xFFFFFFFFU;

/// A position in a byte stream.
struct StreamPosition {
  std::uint32_t number{0};
  std::uint64_t offset{0};
};

/// Sender and receiver of a burst's packets: addresses in the engine's form; zeros: unknown.
struct BurstEnds {
  std::array<std::uint64_t, 3> remote{};
  std::array<std::uint64_t, 3> local{};
};

/// Members of a burst that are reset when it is taken from its pool.
struct BurstContents {
  /// Owners of the segments' buffers; null: the segment has none.
  memory::BufferOwner* owners[MAX_NUM_SEGS]{};
  /// Bit s: `pkts[s]` are GPU addresses, for owners with DeviceCopies.
  std::uint32_t on_device{0};
  /// Number of packets with entries in `buffers`, regardless of the header.
  std::uint32_t owned{0};
  /// Receive: number of its source's packets that wait in the ring; reduced when the burst is taken
  /// from there.
  std::atomic<std::uint32_t>* waiting{nullptr};
  /// Transmit: packets that the engine has accepted and still keeps.
  std::uint32_t kept{0};
  /// Receive: time of the first packet, CLOCK_MONOTONIC ns. Transmit: time of submission, ns on the
  /// port's clock.
  std::uint64_t begun_ns{0};
  /// Stream of the bytes, and their position in it (transmit: LinkLayer::place_in_stream).
  StreamPosition stream;
  /// Receive, datagrams.
  BurstEnds ends;
  /// Aggregates. Bit i of word i / 64: unit i of `units` (slot, or element) contains a packet's
  /// data; null: the burst is no aggregate.
  const std::uint64_t* valid{nullptr};
  std::uint32_t units{0};
  /// Aggregates: missing packets (elements, for plans by byte offsets), and arrival of the last
  /// packet.
  std::uint32_t missing{0};
  std::uint64_t last_time{0};
  /// Aggregates: number of aggregates of its plan that began before it.
  std::uint64_t order{0};
  /// Aggregates: number of aggregates that its plan had lost or skipped when it was delivered.
  std::uint64_t lost{0};
  /// Aggregates: its place in the acquisition, in which lost and skipped ones have places, too.
  std::uint64_t index{0};
  /// Aggregates in recordings: whether some were lost since the previous one.
  bool lossy{false};
  ReorderBurstInfo reorder;
};

/// A burst with its buffers.
///
/// Headers are in slabs that later sessions reuse and that are never returned to the system, so
/// that a stale handle finds state FREE instead of unmapped memory.
struct Burst : BurstParams, BurstContents {
  std::atomic<BurstState> state{BurstState::FREE};
  /// Its owner, and writes in the background that read it.
  std::atomic<std::uint32_t> holders{1};
  BurstPool* home{nullptr};
  /// Buffer numbers of the owners; NO_BUFFER: the packet was freed.
  std::uint32_t* buffers[MAX_NUM_SEGS]{};
  /// Number of packets that the arrays can hold.
  std::uint32_t capacity{0};
  bool transmit{false};
  /// Whether it is a small burst of its pool.
  bool small{false};
  /// Its number in the pool's free list.
  std::uint32_t place{0};
  /// Keeps regions and pools alive while the application holds the burst.
  std::shared_ptr<SessionMemory> keep;

  [[nodiscard]] std::uint32_t num_packets() const noexcept {
    return static_cast<std::uint32_t>(hdr.hdr.num_pkts);
  }
  /// Length of packet `i` over all segments.
  [[nodiscard]] std::uint32_t packet_length(std::uint32_t i) const noexcept {
    std::uint32_t length = 0;
    for (int s = 0; s < hdr.hdr.num_segs; ++s) length += pkt_lens[s][i];
    return length;
  }

  /// Whether a segment's addresses are GPU addresses.
  [[nodiscard]] bool is_on_device(int segment) const noexcept {
    return (on_device >> static_cast<unsigned>(segment) & 1U) != 0;
  }
  /// Whether the CPU can use the addresses of a segment's packets.
  [[nodiscard]] bool host_readable(int segment) const noexcept {
    return !is_on_device(segment) &&
           (owners[segment] == nullptr || owners[segment]->host_readable());
  }
  /// The first segment that the CPU cannot read; -1: it can read all.
  [[nodiscard]] int unreadable_segment() const noexcept;
  /// Address of a packet, or of its copy in host memory if the owner has DeviceCopies.
  [[nodiscard]] std::byte* on_host(int segment, std::uint32_t packet) const noexcept {
    void* const data = pkts[segment][packet];
    if (!is_on_device(segment) || data == nullptr) [[likely]]
      return static_cast<std::byte*>(data);
    return static_cast<std::byte*>(owners[segment]->device_copies()->on_host(data));
  }

  // For segments whose owners have DeviceCopies. Throw Error GENERIC_FAILURE.

  /// Change `pkts` to GPU addresses; `copy`: copy the packets to the GPU after `event` is complete.
  /// Those that a network card has written there stay as they are.
  void move_to_device(bool copy);
  /// Change `pkts` to host addresses and copy the packets from the GPU; kernels of the application
  /// must be complete.
  void move_to_host();
  /// Copy the packets, or `count` of them, from the GPU to the addresses that `on_host` returns.
  void copy_to_host(memory::DeviceCopies::Behind behind) const {
    copy_to_host(behind, 0, num_packets());
  }
  void copy_to_host(memory::DeviceCopies::Behind behind, std::uint32_t first,
                    std::uint32_t count) const;

  /// Free the buffers of one segment, or of one packet.
  void free_segment(int segment) noexcept;
  void free_packet(std::uint32_t packet) noexcept;
  void free_packet_segment(int segment, std::uint32_t packet) noexcept;
  /// Free all buffers, then the burst itself; if there are other holders, the last of them does.
  /// The caller must hold the burst (any state except FREE).
  void release() noexcept;
  /// Whether only its owner holds it, and may change it.
  [[nodiscard]] bool exclusive() const noexcept {
    return holders.load(std::memory_order_acquire) == 1;
  }
};

/// Call before the CPU reads or writes packets. Throws Error NOT_SUPPORTED if a segment is in
/// memory that only a device can access; `action` is the requested operation: "written to a file".
void require_host_readable(const Burst& burst, std::string_view action);

/// Keeps a burst and its packets from being freed while another thread reads them.
class BurstHold {
 public:
  /// Called by the owner.
  explicit BurstHold(Burst& burst) noexcept : burst_(burst) {
    burst.holders.fetch_add(1, std::memory_order_relaxed);
  }
  BurstHold(const BurstHold&) = delete;
  BurstHold& operator=(const BurstHold&) = delete;
  ~BurstHold() { burst_.release(); }

 private:
  Burst& burst_;
};

/// Capacity of a queue's bursts, in packets: its batch size, which queues with poll_mode direct do
/// not have.
template <typename Queue>
[[nodiscard]] int burst_size(const Queue& queue) noexcept {
  constexpr int DIRECT = 64;
  return queue.poll_mode_ == QueuePollMode::DIRECT ? DIRECT : queue.common_.batch_size_;
}

/// Bursts of equal capacity, and small ones that are used when these are exhausted.
class BurstPool {
 public:
  /// Capacity of a small burst, in packets.
  static constexpr std::uint32_t SMALL = 8;

  /// `small`: number of small bursts that may be made when all others are in use; memory is
  /// allocated only for those that are needed at the same time. Throws Error NO_FREE_BURST_BUFFERS
  /// if there is no memory for the arrays.
  BurstPool(std::uint32_t count, std::uint32_t capacity, int num_segments, bool transmit,
            std::uint32_t small = 0);
  /// Size of the arrays of this many bursts.
  static std::uint64_t bytes(std::uint32_t count, std::uint32_t capacity,
                             int num_segments) noexcept;
  ~BurstPool();

  /// A reset burst in state ENGINE, or null. If there are small bursts, called by one thread.
  Burst* take() noexcept;
  /// Return a burst to the pool; its buffers must have been freed.
  void give(Burst* burst) noexcept;
  /// Increase the capacity of an empty burst to `n` packets. Any thread; false: out of memory.
  bool enlarge(Burst& burst, std::uint32_t n) noexcept;

  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  /// Number of bursts that can be in use at the same time.
  [[nodiscard]] std::uint32_t most() const noexcept { return count_ + small_limit_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t available() const noexcept { return free_.available(); }

 private:
  /// Arrays for `count` bursts, which `attach` assigns one by one.
  std::byte* allocate(std::uint32_t count, std::uint32_t capacity);
  std::byte* attach(Burst& burst, std::byte* arrays, std::uint32_t capacity) const noexcept;
  void make(std::uint32_t count, std::uint32_t capacity, bool small);
  bool make_small() noexcept;

  std::uint32_t count_;
  std::uint32_t capacity_;
  int num_segments_;
  bool transmit_;
  std::uint32_t small_limit_;
  std::vector<std::unique_ptr<std::byte[]>> arrays_;
  std::vector<Burst*> bursts_;
  memory::FreeList free_;
  memory::FreeList free_small_;
};

}  // namespace daqiri
