/// The interpreter lock around work that waits or copies.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "daqiri/error.h"
#include "timing/clock.h"

namespace daqiri::python {

/// Without the lock for a scope.
///
/// Taking the lock back while the interpreter is being finalized ends the thread by unwinding its
/// stack (CPython before 3.14), which must not run through C++ destructors. Such a thread stays
/// where it is, as it does from 3.14 on; it ends with the process.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      // Nothing else comes out of C.
      for (;;) pause();
    }
  }

 private:
  PyThreadState* state_;
};

/// Run pending signal handlers; throws what they raise. Needs the lock.
void check_signals();

/// End of a wait, given in seconds as Python gives it.
class Deadline {
 public:
  /// A signal ends a sleep of the main thread, which runs its handlers; this is how often a thread
  /// looks anyway, for signals that came just before it slept or that were only simulated.
  static constexpr std::int64_t SLICE_NS = 1'000'000'000;

  /// None: never. Throws Error INVALID_PARAMETER for a negative number or NaN.
  explicit Deadline(std::optional<double> seconds) : timeout_(seconds) {
    if (!seconds) return;
    if (!(*seconds >= 0.0)) {
      throw Error(Status::INVALID_PARAMETER,
                  "timeout is " + std::to_string(*seconds) +
                      "; give seconds from 0 on, or None to wait without limit");
    }
    restart();
  }

  /// Count from now.
  void restart() noexcept {
    constexpr double LONGEST_S = 1e9;
    if (timeout_)
      end_ns_ = monotonic_ns() + static_cast<std::uint64_t>(std::min(*timeout_, LONGEST_S) * 1e9);
  }
  [[nodiscard]] bool passed() const noexcept {
    return timeout_ && (*timeout_ == 0.0 || monotonic_ns() >= end_ns_);
  }
  /// ns to sleep before looking again.
  [[nodiscard]] std::int64_t slice(std::int64_t longest = SLICE_NS) const noexcept {
    if (!timeout_) return longest;
    const std::uint64_t now = monotonic_ns();
    return now >= end_ns_ ? 0 : std::min(longest, static_cast<std::int64_t>(end_ns_ - now));
  }

 private:
  std::optional<double> timeout_;
  std::uint64_t end_ns_{0};
};

/// Call `step` without the lock until it returns false; Ctrl-C is heard meanwhile.
template <typename Step>
void run_steps(Step&& step) {
  for (bool more = true; more;) {
    {
      const GilRelease unlocked;
      const std::uint64_t end = monotonic_ns() + Deadline::SLICE_NS;
      do more = step();
      while (more && monotonic_ns() < end);
    }
    check_signals();
  }
}

}  // namespace daqiri::python
