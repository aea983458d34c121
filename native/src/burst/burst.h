/// Bursts inside the engine: their buffers and their current holder.
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

/// A place in a byte stream.
struct StreamPosition {
  std::uint32_t number{0};
  std::uint64_t offset{0};
};

/// Who sent what a burst holds, and to whom: addresses in the engine's form; zeros: not known.
struct BurstEnds {
  std::array<std::uint64_t, 3> remote{};
  std::array<std::uint64_t, 3> local{};
};

/// What a burst forgets when it is taken from its pool again.
struct BurstContents {
  /// Who gets the segments' buffers back; null: the segment has none.
  memory::BufferOwner* owners[MAX_NUM_SEGS]{};
  /// Bit s: `pkts[s]` are where the GPU has the packets, of an owner that has DeviceCopies.
  std::uint32_t on_device{0};
  /// Packets that have entries in `buffers`, whatever the header says.
  std::uint32_t owned{0};
  /// Receive: packets of its source that wait in the ring; counted down when it is taken from
  /// there.
  std::atomic<std::uint32_t>* waiting{nullptr};
  /// Transmit: packets that the engine was given and still keeps.
  std::uint32_t kept{0};
  /// Receive: CLOCK_MONOTONIC ns of the first packet. Transmit: port clock ns of submission.
  std::uint64_t begun_ns{0};
  /// Which stream the bytes are of, and where in it they begin (transmit:
  /// LinkLayer::place_in_stream).
  StreamPosition stream;
  /// Receive, datagrams.
  BurstEnds ends;
  /// Aggregates. Bit i of word i / 64: unit i of `units` (slot, or element) came with a packet;
  /// null: the burst is no aggregate.
  const std::uint64_t* valid{nullptr};
  std::uint32_t units{0};
  /// Aggregates: packets that it lacks (elements, of plans by byte offsets), and when the last one
  /// came.
  std::uint32_t missing{0};
  std::uint64_t last_time{0};
  /// Aggregates: how many of its plan were begun before it.
  std::uint64_t order{0};
  /// Aggregates: how many its plan had lost when it was handed on.
  std::uint64_t lost{0};
  /// Aggregates that are recorded: some were lost since the one before.
  bool lossy{false};
  ReorderBurstInfo reorder;
};

/// A burst with the buffers it holds.
///
/// Headers live in slabs that are reused by later sessions and never returned to the system, so
/// that a stale handle finds state FREE instead of unmapped memory.
struct Burst : BurstParams, BurstContents {
  std::atomic<BurstState> state{BurstState::FREE};
  /// Its owner, and writes in the background that read it.
  std::atomic<std::uint32_t> holders{1};
  BurstPool* home{nullptr};
  /// Buffers by their owner's numbers; NO_BUFFER where a packet was freed.
  std::uint32_t* buffers[MAX_NUM_SEGS]{};
  /// Packets that the arrays can hold.
  std::uint32_t capacity{0};
  bool transmit{false};
  /// Of its pool's small ones.
  bool small{false};
  /// In its pool's list of free ones.
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

  /// Whether a segment's packets are where the GPU has them.
  [[nodiscard]] bool is_on_device(int segment) const noexcept {
    return (on_device >> static_cast<unsigned>(segment) & 1U) != 0;
  }
  /// Whether the CPU can use the addresses of a segment's packets.
  [[nodiscard]] bool host_readable(int segment) const noexcept {
    return !is_on_device(segment) &&
           (owners[segment] == nullptr || owners[segment]->host_readable());
  }
  /// The first segment whose packets the CPU cannot read; -1: it can read all of them.
  [[nodiscard]] int unreadable_segment() const noexcept;
  /// Where the CPU has a packet whose owner has a copy for it; else its address.
  [[nodiscard]] std::byte* on_host(int segment, std::uint32_t packet) const noexcept {
    void* const data = pkts[segment][packet];
    if (!is_on_device(segment) || data == nullptr) [[likely]]
      return static_cast<std::byte*>(data);
    return static_cast<std::byte*>(owners[segment]->device_copies()->on_host(data));
  }

  // Of segments whose owners have DeviceCopies. Throw Error GENERIC_FAILURE.

  /// `pkts` become the GPU's; `copy`: with what the host has, when `event` is complete.
  void move_to_device(bool copy);
  /// `pkts` become the host's, with what the GPU has: kernels of others are done.
  void move_to_host();
  /// What `on_host` tells becomes what the GPU has.
  void copy_to_host(memory::DeviceCopies::Behind behind) const;

  /// Give buffers of one segment, or of one packet, back to their owner.
  void free_segment(int segment) noexcept;
  void free_packet(std::uint32_t packet) noexcept;
  void free_packet_segment(int segment, std::uint32_t packet) noexcept;
  /// Give all buffers back, then the burst itself, unless there are other holders: then the last of
  /// them does. Must be held by the caller (any state but FREE).
  void release() noexcept;
  /// Whether only its owner holds it, and may change it.
  [[nodiscard]] bool exclusive() const noexcept {
    return holders.load(std::memory_order_acquire) == 1;
  }
};

/// The one gate before the CPU reads or writes packets. Throws Error NOT_SUPPORTED when a segment
/// lies in memory that only a device can read; `action` is what was asked for: "written to a file".
void require_host_readable(const Burst& burst, std::string_view action);

/// Keeps a burst and its packets from being given back while somebody beside its owner reads them.
class BurstHold {
 public:
  /// By the owner.
  explicit BurstHold(Burst& burst) noexcept : burst_(burst) {
    burst.holders.fetch_add(1, std::memory_order_relaxed);
  }
  BurstHold(const BurstHold&) = delete;
  BurstHold& operator=(const BurstHold&) = delete;
  ~BurstHold() { burst_.release(); }

 private:
  Burst& burst_;
};

/// Packets that a burst of a queue has room for: its batch size, which a queue that its callers
/// poll does not have.
template <typename Queue>
[[nodiscard]] int burst_size(const Queue& queue) noexcept {
  constexpr int DIRECT = 64;
  return queue.poll_mode_ == QueuePollMode::DIRECT ? DIRECT : queue.common_.batch_size_;
}

/// Bursts of equal capacity, and small ones for when these are in use.
class BurstPool {
 public:
  /// Packets of a small burst.
  static constexpr std::uint32_t SMALL = 8;

  /// `small`: how many small bursts may be made when all others are taken; memory is spent on those
  /// that are needed at the same time, once.
  /// Throws Error NO_FREE_BURST_BUFFERS when there is no memory for the arrays.
  BurstPool(std::uint32_t count, std::uint32_t capacity, int num_segments, bool transmit,
            std::uint32_t small = 0);
  /// What the arrays of so many bursts take.
  static std::uint64_t bytes(std::uint32_t count, std::uint32_t capacity,
                             int num_segments) noexcept;
  ~BurstPool();

  /// A reset burst in state ENGINE, or null. Small ones are made by one thread.
  Burst* take() noexcept;
  /// Back to the pool; its buffers must have been given back.
  void give(Burst* burst) noexcept;
  /// Room for `n` packets from now on, in a burst that has none. Any thread; false: there is no
  /// memory.
  bool enlarge(Burst& burst, std::uint32_t n) noexcept;

  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  /// Bursts that can be in use at the same time.
  [[nodiscard]] std::uint32_t most() const noexcept { return count_ + small_limit_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t available() const noexcept { return free_.available(); }

 private:
  /// Arrays for `count` bursts that `attach` then takes one by one.
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
