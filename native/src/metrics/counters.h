/// Named counters of queues; a snapshot is consistent.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace daqiri {

/// Why a packet was dropped. Names: drop_reason_name.
enum class DropReason : std::uint8_t {
  NO_PACKET_BUFFER,
  NO_BURST_BUFFER,
  RING_FULL,
  KERNEL,
  NIC,
  TRUNCATED,
  FILTERED,
  FLUSHED,
  SEND_ERROR,
  MISSED_LAUNCH,
};
inline constexpr std::size_t NUM_DROP_REASONS = 10;
std::string_view drop_reason_name(DropReason reason) noexcept;

using DropCounts = std::array<std::uint64_t, NUM_DROP_REASONS>;
inline std::uint64_t total(const DropCounts& counts) noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

/// At any snapshot: received = delivered + held + sum(dropped).
struct RxSnapshot {
  std::uint64_t received{0};
  std::uint64_t received_bytes{0};
  std::uint64_t delivered{0};
  /// In an open burst or in the ring.
  std::uint64_t held{0};
  std::uint64_t bursts{0};
  /// Delivered, but cut to the buffer (UDP).
  std::uint64_t truncated{0};
  /// Most bursts ever in the ring (mode maximum).
  std::uint64_t ring_high_water{0};
  DropCounts dropped{};
  [[nodiscard]] std::uint64_t dropped_total() const noexcept { return total(dropped); }
};

/// At any snapshot: submitted = sent + held + sum(dropped).
struct TxSnapshot {
  std::uint64_t submitted{0};
  std::uint64_t sent{0};
  std::uint64_t sent_bytes{0};
  std::uint64_t held{0};
  std::uint64_t bursts{0};
  /// Launch time already past when submitted.
  std::uint64_t late{0};
  DropCounts dropped{};
  [[nodiscard]] std::uint64_t dropped_total() const noexcept { return total(dropped); }
};

/// How full a queue's ring, and the pool that its bursts come from, are. Exact when no other thread
/// is at work.
struct QueueLevels {
  std::uint64_t ring{0};
  std::uint64_t ring_capacity{0};
  std::uint64_t bursts_free{0};
  std::uint64_t bursts{0};
};

/// A number with the name by which users know it.
template <typename Owner>
struct NamedNumber {
  std::string_view name;
  std::uint64_t Owner::* value;
};
/// All but the drops, which have names of their own.
inline constexpr std::array<NamedNumber<RxSnapshot>, 7> RX_NUMBERS{
    {{"received", &RxSnapshot::received},
     {"received_bytes", &RxSnapshot::received_bytes},
     {"delivered", &RxSnapshot::delivered},
     {"held", &RxSnapshot::held},
     {"bursts", &RxSnapshot::bursts},
     {"truncated", &RxSnapshot::truncated},
     {"ring_high_water", &RxSnapshot::ring_high_water}}};
inline constexpr std::array<NamedNumber<TxSnapshot>, 6> TX_NUMBERS{
    {{"submitted", &TxSnapshot::submitted},
     {"sent", &TxSnapshot::sent},
     {"sent_bytes", &TxSnapshot::sent_bytes},
     {"held", &TxSnapshot::held},
     {"bursts", &TxSnapshot::bursts},
     {"late", &TxSnapshot::late}}};
inline constexpr std::array<NamedNumber<QueueLevels>, 4> LEVEL_NUMBERS{
    {{"ring", &QueueLevels::ring},
     {"ring_capacity", &QueueLevels::ring_capacity},
     {"bursts_free", &QueueLevels::bursts_free},
     {"bursts_total", &QueueLevels::bursts}}};

/// N values that one thread writes together and others read together.
///
/// A sequence lock without fences: data are atomics, stored with release and loaded with acquire,
/// so that neither crosses the sequence number. On x86 these are plain moves.
template <std::size_t N>
class CounterGroup {
 public:
  void publish(const std::array<std::uint64_t, N>& values) noexcept {
    const std::uint64_t seq = sequence_.load(std::memory_order_relaxed);
    sequence_.store(seq + 1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < N; ++i) values_[i].store(values[i], std::memory_order_release);
    sequence_.store(seq + 2, std::memory_order_release);
  }
  [[nodiscard]] std::array<std::uint64_t, N> read() const noexcept {
    std::array<std::uint64_t, N> values{};
    for (;;) {
      const std::uint64_t before = sequence_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < N; ++i) values[i] = values_[i].load(std::memory_order_acquire);
      const std::uint64_t after = sequence_.load(std::memory_order_relaxed);
      if (before == after && (before & 1U) == 0) return values;
    }
  }

 private:
  alignas(64) std::atomic<std::uint64_t> sequence_{0};
  std::array<std::atomic<std::uint64_t>, N> values_{};
};

}  // namespace daqiri
