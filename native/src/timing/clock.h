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

/// Reads a clock, ns.
using Clock = std::uint64_t (*)() noexcept;

/// The clock of ports on kernel engines: receive timestamps and launch times compare.
inline std::uint64_t realtime_ns() noexcept { return clock_ns(CLOCK_REALTIME); }
/// For intervals: never set back.
inline std::uint64_t monotonic_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace daqiri
