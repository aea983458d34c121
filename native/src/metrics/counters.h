/// Named counters of queues and ports; a snapshot is consistent.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>

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
  MALFORMED,
};
inline constexpr std::size_t NUM_DROP_REASONS = 11;
inline std::string_view drop_reason_name(DropReason reason) noexcept {
  static constexpr std::array<std::string_view, NUM_DROP_REASONS> NAMES{
      "no_packet_buffer", "no_burst_buffer", "ring_full",  "kernel",        "nic",      "truncated",
      "filtered",         "flushed",         "send_error", "missed_launch", "malformed"};
  return NAMES[static_cast<std::size_t>(reason)];
}

struct DropCounts : std::array<std::uint64_t, NUM_DROP_REASONS> {
  using array::operator[];
  std::uint64_t& operator[](DropReason reason) noexcept {
    return (*this)[static_cast<std::size_t>(reason)];
  }
};
inline std::uint64_t total(const DropCounts& counts) noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

/// A number with its public name.
struct Counter {
  const char* name;
  std::uint64_t value{0};

  void operator=(std::uint64_t n) noexcept { value = n; }
  void operator+=(std::uint64_t n) noexcept { value += n; }
  void operator-=(std::uint64_t n) noexcept { value -= n; }
  operator std::uint64_t() const noexcept { return value; }  // NOLINT(google-explicit-constructor)
};

// A group of counters is a struct whose members are Counters, followed by `dropped` if packets can
// be dropped. A new counter needs one line: the member with its name.

/// In every snapshot: received = delivered + held + sum(dropped). Packets that a reorder plan
/// accepts count as delivered.
struct RxSnapshot {
  Counter received{"received"};
  Counter received_bytes{"received_bytes"};
  Counter delivered{"delivered"};
  /// In a stage before the bursts, in an open burst, or in the ring.
  Counter held{"held"};
  Counter bursts{"bursts"};
  /// Delivered, but truncated to the buffer (UDP).
  Counter truncated{"truncated"};
  /// Largest number of bursts in the ring so far (mode maximum).
  Counter ring_high_water{"ring_high_water"};
  DropCounts dropped{};
  [[nodiscard]] std::uint64_t dropped_total() const noexcept { return total(dropped); }
};

/// In every snapshot: submitted = sent + held + sum(dropped).
struct TxSnapshot {
  Counter submitted{"submitted"};
  Counter sent{"sent"};
  Counter sent_bytes{"sent_bytes"};
  Counter held{"held"};
  Counter bursts{"bursts"};
  /// Packets whose launch time had passed when they were submitted.
  Counter late{"late"};
  DropCounts dropped{};
  [[nodiscard]] std::uint64_t dropped_total() const noexcept { return total(dropped); }
};

/// Packets that a receive flow matched, including those dropped later. The sum over the flows of a
/// port is all that its queues received, without packets that no flow matched.
struct FlowSnapshot {
  Counter packets{"packets"};
  Counter bytes{"bytes"};
};

/// Frames that this host lost before the engine could receive them, since the port was opened:
/// those of the port's whole network interface, which other programs may share. They are in no
/// counter of a queue or flow.
struct PortSnapshot {
  /// Those that are losses for certain: `lost_card`, `lost_backlog` and `lost_errors`, and
  /// `lost_dropped` where every frame of the interface is received (AF_PACKET), less those that may
  /// have been received. 0 on TCP, which sends them again.
  Counter lost_before_engine{"lost_before_engine"};
  /// The ring or the memory of the network card was full.
  Counter lost_card{"lost_card"};
  /// The kernel's queue of a core was full (net.core.netdev_max_backlog).
  Counter lost_backlog{"lost_backlog"};
  /// Damaged frames, and frames of wrong length.
  Counter lost_errors{"lost_errors"};
  /// Others that the kernel says it dropped; also those that no other program wants.
  Counter lost_dropped{"lost_dropped"};
};

/// Fill levels of a queue's ring and of its pool of bursts. Exact if no other thread is active.
struct QueueLevels {
  Counter ring{"ring"};
  Counter ring_capacity{"ring_capacity"};
  Counter bursts_free{"bursts_free"};
  Counter bursts{"bursts_total"};
};

template <typename Group>
consteval std::size_t num_counters() {
  static_assert(std::is_standard_layout_v<Group>);
  if constexpr (requires(Group group) { group.dropped; }) {
    return offsetof(Group, dropped) / sizeof(Counter);
  } else {
    return sizeof(Group) / sizeof(Counter);
  }
}

/// The counters of a group, without its drops.
template <typename Group>
auto counters_of(Group& group) noexcept {
  constexpr std::size_t N = num_counters<std::remove_const_t<Group>>();
  using Element = std::conditional_t<std::is_const_v<Group>, const Counter, Counter>;
  return std::span<Element, N>(reinterpret_cast<Element*>(&group), N);
}

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
  /// Publish the last published values plus `more`. Called by the publishing thread.
  void add(const std::array<std::uint64_t, N>& more) noexcept {
    std::array<std::uint64_t, N> values;
    for (std::size_t i = 0; i < N; ++i)
      values[i] = values_[i].load(std::memory_order_relaxed) + more[i];
    publish(values);
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

/// A group of counters that one thread counts and publishes, and others read.
template <typename Group>
class PublishedCounters {
  static constexpr std::size_t N = num_counters<Group>();
  static constexpr bool DROPS = requires(Group group) { group.dropped; };
  static constexpr std::size_t ALL = N + (DROPS ? NUM_DROP_REASONS : 0);

 public:
  void publish(const Group& group) noexcept {
    std::array<std::uint64_t, ALL> values;
    const auto counters = counters_of(group);
    for (std::size_t i = 0; i < N; ++i) values[i] = counters[i].value;
    if constexpr (DROPS) std::copy(group.dropped.begin(), group.dropped.end(), values.begin() + N);
    published_.publish(values);
  }
  [[nodiscard]] Group read() const noexcept {
    const auto values = published_.read();
    Group group;
    const auto counters = counters_of(group);
    for (std::size_t i = 0; i < N; ++i) counters[i].value = values[i];
    if constexpr (DROPS) std::copy(values.begin() + N, values.end(), group.dropped.begin());
    return group;
  }

 private:
  CounterGroup<ALL> published_;
};

}  // namespace daqiri
