#include "storage/recorder_group.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "daqiri/error.h"
#include "timing/clock.h"

namespace daqiri {

std::uint64_t limit_ns(const char* name, double seconds) {
  // More than a century is rejected, because it would not fit into nanoseconds.
  if (!(seconds >= 0.0 && seconds <= 3e9)) {
    throw Error(Status::INVALID_PARAMETER, std::string(name) + " is " + std::to_string(seconds) +
                                               "; accepted is 0 or more, up to 3e9");
  }
  return static_cast<std::uint64_t>(std::ceil(seconds * 1e9));
}

RecorderGroup::RecorderGroup(const Limits& limits)
    : limits_(limits),
      roll_ns_(limit_ns("roll_seconds", limits.roll_seconds)),
      left_(limits.max_packets),
      remaining_ns_(limit_ns("max_seconds", limits.max_seconds)) {}

void RecorderGroup::begin() {
  const std::lock_guard lock(mutex_);
  start_clock();
}

void RecorderGroup::hold(bool held) {
  const std::lock_guard lock(mutex_);
  if (!held) {
    --holds_;
    return start_clock();
  }
  ++holds_;
  if (deadline() == NEVER) return;
  const std::uint64_t now = monotonic_ns();
  // Not 0, so that an expired clock ends when it continues.
  remaining_ns_ = deadline() > now ? deadline() - now : 1;
  deadline_ns_.store(NEVER, std::memory_order_relaxed);
}

void RecorderGroup::end_in(double seconds) {
  const std::uint64_t ns = limit_ns("the time to the end", seconds);
  const std::lock_guard lock(mutex_);
  remaining_ns_ = 0;
  deadline_ns_.store(monotonic_ns() + ns, std::memory_order_relaxed);
}

void RecorderGroup::start_clock() {
  if (holds_ > 0) return;
  if (const std::uint64_t ns = std::exchange(remaining_ns_, 0); ns > 0)
    deadline_ns_.store(monotonic_ns() + ns, std::memory_order_relaxed);
}

std::uint32_t RecorderGroup::take(std::uint32_t wanted) noexcept {
  if (limits_.max_packets == 0) return wanted;
  std::uint64_t left = left_.load(std::memory_order_relaxed);
  std::uint32_t taken = 0;
  do {
    taken = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, left));
  } while (!left_.compare_exchange_weak(left, left - taken, std::memory_order_relaxed));
  return taken;
}

void RecorderGroup::wrote(std::uint64_t packets, std::uint64_t bytes) {
  if (packets == 0) return;
  const std::lock_guard lock(mutex_);
  packets_ += packets;
  bytes_ += bytes;
  if (first_ns_ == 0) first_ns_ = monotonic_ns();
  if ((limits_.roll_packets > 0 && packets_ >= limits_.roll_packets) ||
      (limits_.roll_bytes > 0 && bytes_ >= limits_.roll_bytes))
    roll();
}

void RecorderGroup::poll(std::uint64_t now_ns) {
  if (roll_ns_ == 0) return;
  const std::lock_guard lock(mutex_);
  if (first_ns_ != 0 && now_ns >= first_ns_ + roll_ns_) roll();
}

void RecorderGroup::roll() {
  if (ended_) return;
  packets_ = bytes_ = first_ns_ = 0;
  rolls_.fetch_add(1, std::memory_order_release);
}

std::uint64_t RecorderGroup::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  return rolls();
}

}  // namespace daqiri
