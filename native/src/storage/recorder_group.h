/// Limits that several recorders share.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>

namespace daqiri {

/// Returns nanoseconds. Throws Error INVALID_PARAMETER; `name` is the name of the limit.
std::uint64_t limit_ns(const char* name, double seconds);

/// Recorders of several queues or plans whose files belong together. The limits apply to the sum of
/// their records. When a file is full, all complete theirs, even empty ones, and each ends with a
/// file, so that all have the same number of files.
class RecorderGroup {
 public:
  /// 0: no limit. Bytes are those of packets on the wire, or of frames; for recorders of plans,
  /// numbers count frames.
  struct Limits {
    std::uint64_t max_packets{0};
    std::uint64_t roll_packets{0};
    std::uint64_t roll_bytes{0};
    double roll_seconds{0.0};
    double max_seconds{0.0};
  };
  /// Throws Error.
  explicit RecorderGroup(const Limits& limits);

  [[nodiscard]] const Limits& limits() const noexcept { return limits_; }
  /// Start the clock of `max_seconds`, unless it has started.
  void begin();
  /// Stop the clock while at least one recorder is paused.
  void hold(bool held);
  /// Let `max_seconds` end this long from now. Throws Error.
  void end_in(double seconds);
  /// When `max_seconds` ends, CLOCK_MONOTONIC ns; the largest number: unknown.
  [[nodiscard]] std::uint64_t deadline() const noexcept {
    return deadline_ns_.load(std::memory_order_relaxed);
  }

  /// Take up to this many packets of `max_packets`; returns how many were left.
  std::uint32_t take(std::uint32_t wanted) noexcept;
  void give_back(std::uint64_t packets) noexcept {
    if (limits_.max_packets > 0) left_.fetch_add(packets, std::memory_order_relaxed);
  }
  [[nodiscard]] bool limit_reached() const noexcept {
    return limits_.max_packets > 0 && left_.load(std::memory_order_relaxed) == 0;
  }

  /// One recorder has written this much since the last call.
  void wrote(std::uint64_t packets, std::uint64_t bytes);
  /// Number of files that all recorders must have completed.
  [[nodiscard]] std::uint64_t rolls() const noexcept {
    return rolls_.load(std::memory_order_acquire);
  }
  /// Roll by time. `now_ns`: CLOCK_MONOTONIC.
  void poll(std::uint64_t now_ns);
  /// A recorder ends: there are no more rolls. Returns their number.
  std::uint64_t end();

 private:
  void roll();
  void start_clock();

  static constexpr std::uint64_t NEVER = std::numeric_limits<std::uint64_t>::max();

  const Limits limits_;
  std::uint64_t roll_ns_;
  std::atomic<std::uint64_t> deadline_ns_{NEVER};
  std::atomic<std::uint64_t> left_;
  std::atomic<std::uint64_t> rolls_{0};
  std::mutex mutex_;
  // Since the last roll; `first_ns_`: time of the first packet, 0: none yet.
  std::uint64_t packets_{0};
  std::uint64_t bytes_{0};
  std::uint64_t first_ns_{0};
  bool ended_{false};
  /// Rest of `max_seconds` while its clock is stopped; 0: there is nothing to start.
  std::uint64_t remaining_ns_;
  std::uint32_t holds_{0};
};

}  // namespace daqiri
