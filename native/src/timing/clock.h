/// Clocks.
#pragma once

#include <cstdint>
#include <ctime>

namespace daqiri {

inline std::uint64_t clock_ns(clockid_t clock) noexcept {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(t.tv_nsec);
}

/// The clock of ports on kernel engines, for receive timestamps and launch times.
inline std::uint64_t realtime_ns() noexcept { return clock_ns(CLOCK_REALTIME); }
/// For intervals: never set back.
inline std::uint64_t monotonic_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }

/// Reads the clock of a port, ns.
struct Clock {
  std::uint64_t (*read)(const void* of) noexcept {
      [](const void*) noexcept { return realtime_ns(); }};
  const void* of{nullptr};

  std::uint64_t operator()() const noexcept { return read(of); }
  /// Whether both are the same clock.
  bool operator==(const Clock&) const = default;
};

/// Difference of `clock` to CLOCK_REALTIME now, ns; exact to half the time of reading a clock.
inline std::int64_t ahead_of_realtime(clockid_t clock) noexcept {
  constexpr int READINGS = 3;
  std::uint64_t narrowest = ~std::uint64_t{0};
  std::int64_t ahead = 0;
  for (int i = 0; i < READINGS; ++i) {
    const std::uint64_t before = realtime_ns();
    const std::uint64_t there = clock_ns(clock);
    const std::uint64_t width = realtime_ns() - before;
    if (width >= narrowest) continue;
    narrowest = width;
    ahead = static_cast<std::int64_t>(there - (before + width / 2));
  }
  return ahead;
}

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace daqiri
