/// Counts the packets steered to each flow.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "metrics/counters.h"
#include "steering/lookup.h"

namespace daqiri::steering {

/// Counts of one thread, by flow. Each packet is counted once, before the queue counts it, with the
/// same number of bytes.
class FlowTally {
 public:
  explicit FlowTally(std::size_t num_positions) { grow(num_positions); }

  /// Adds space for more flows, while other threads count and read. One thread at a time.
  void grow(std::size_t num_positions);
  /// Count packets with the same Verdict::position; NO_FLOW: they are not counted.
  void count(std::uint16_t position, std::uint64_t packets, std::uint64_t bytes) noexcept {
    if (Counts* counts = find(position)) counts->add({packets, bytes});
  }
  /// Returns packets and bytes. Any thread.
  [[nodiscard]] std::array<std::uint64_t, 2> read(std::size_t position) const noexcept {
    const Counts* counts = find(position);
    return counts == nullptr ? std::array<std::uint64_t, 2>{} : counts->read();
  }

 private:
  using Counts = CounterGroup<2>;
  static constexpr std::size_t AT_ONCE = 256;
  using Chunk = std::array<Counts, AT_ONCE>;

  [[nodiscard]] Counts* find(std::size_t position) const noexcept {
    if (position >= NO_FLOW) return nullptr;
    Chunk* chunk = chunks_[position / AT_ONCE].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &(*chunk)[position % AT_ONCE];
  }

  std::array<std::atomic<Chunk*>, (NO_FLOW + AT_ONCE) / AT_ONCE> chunks_{};
  std::vector<std::unique_ptr<Chunk>> owned_;
};

/// Counts single packets together as long as they belong to the same flow.
class FlowRun {
 public:
  explicit FlowRun(FlowTally& tally) : tally_(tally) {}

  /// Add a packet; `position`: Verdict::position.
  void add(std::uint16_t position) noexcept { add(position, 1, 0); }
  /// Add packets of a flow, with `bytes` bytes.
  void add(std::uint16_t position, std::uint64_t packets, std::uint64_t bytes) noexcept {
    if (position != position_) end();
    position_ = position;
    packets_ += packets;
    bytes_ += bytes;
  }
  /// Add bytes of the latest packet.
  void add_bytes(std::uint32_t bytes) noexcept { bytes_ += bytes; }
  void end() noexcept {
    tally_.count(position_, std::exchange(packets_, 0), std::exchange(bytes_, 0));
  }

 private:
  FlowTally& tally_;
  std::uint16_t position_{NO_FLOW};
  std::uint64_t packets_{0};
  std::uint64_t bytes_{0};
};

}  // namespace daqiri::steering
