/// Limits that recorders have in common.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>

namespace daqiri {

/// Returns nanoseconds. Throws Error INVALID_PARAMETER; `name` is what the time limits.
std::uint64_t limit_ns(const char* name, double seconds);

/// Recorders of several queues, or plans, whose files belong together. The limits hold for what
/// they write together; when a file is full all of them complete theirs, even an empty one, and
/// each ends with a file: all have equally many.
class RecorderGroup {
 public:
  /// 0: no limit. Bytes are those of packets on the wire, or of frames; of recorders of plans,
  /// numbers are of frames.
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
  /// The clock of `max_seconds` starts, unless it has.
  void begin();
  /// It stops while at least one of them is paused.
  void hold(bool held);
  /// `max_seconds` is over so long from now. Throws Error.
  void end_in(double seconds);
  /// When `max_seconds` is over. CLOCK_MONOTONIC ns; the highest number: not known.
  [[nodiscard]] std::uint64_t deadline() const noexcept {
    return deadline_ns_.load(std::memory_order_relaxed);
  }

  /// Take so many packets of `max_packets`; returns how many there were.
  std::uint32_t take(std::uint32_t wanted) noexcept;
  void give_back(std::uint64_t packets) noexcept {
    if (limits_.max_packets > 0) left_.fetch_add(packets, std::memory_order_relaxed);
  }
  [[nodiscard]] bool limit_reached() const noexcept {
    return limits_.max_packets > 0 && left_.load(std::memory_order_relaxed) == 0;
  }

  /// So much was written since the last call, by one of them.
  void wrote(std::uint64_t packets, std::uint64_t bytes);
  /// How often all have to complete a file.
  [[nodiscard]] std::uint64_t rolls() const noexcept {
    return rolls_.load(std::memory_order_acquire);
  }
  /// Roll by time. CLOCK_MONOTONIC.
  void poll(std::uint64_t now_ns);
  /// One of them ends: there are no more rolls. Returns how many there were.
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
  // Since the last roll; the time is that of the first packet, 0: none yet.
  std::uint64_t packets_{0};
  std::uint64_t bytes_{0};
  std::uint64_t first_ns_{0};
  bool ended_{false};
  /// Of `max_seconds`, while its clock stands; 0: there is nothing to start.
  std::uint64_t remaining_ns_;
  std::uint32_t holds_{0};
};

}  // namespace daqiri
