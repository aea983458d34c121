/// Releases the interpreter lock around work that waits or copies.
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

/// Releases the lock for a scope.
///
/// Until CPython 3.14, taking the lock back during finalization ends the thread by unwinding its
/// stack, which must not run through C++ destructors. Such a thread sleeps until the process ends
/// instead, as it does in CPython 3.14.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      // C code throws nothing else.
      for (;;) pause();
    }
  }

 private:
  PyThreadState* state_;
};

/// Takes the lock for a scope, on any thread; false if the interpreter exits.
///
/// Before CPython 3.14, taking it during finalization would end the thread.
class GilHold {
 public:
  GilHold() : held_(exiting() == 0) {
    if (held_) state_ = PyGILState_Ensure();
  }
  GilHold(const GilHold&) = delete;
  GilHold& operator=(const GilHold&) = delete;
  ~GilHold() {
    if (held_) PyGILState_Release(state_);
  }
  explicit operator bool() const noexcept { return held_; }

 private:
  static int exiting() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
  }

  bool held_;
  PyGILState_STATE state_{};
};

/// Keeps what the interpreter knows of a thread of the engine until the thread ends, such as what
/// libraries keep for each thread. Made with the lock held.
class InterpreterState {
 public:
  InterpreterState() { static_cast<void>(PyGILState_Ensure()); }
  InterpreterState(const InterpreterState&) = delete;
  InterpreterState& operator=(const InterpreterState&) = delete;
  ~InterpreterState() {
    const GilHold locked;
    if (locked) PyGILState_Release(PyGILState_LOCKED);
  }
};

/// Runs pending signal handlers and throws what they raise. Needs the lock.
void check_signals();

/// The end of a wait, given in seconds.
class Deadline {
 public:
  /// A signal interrupts a sleep of the main thread, which then runs the handlers. Threads also
  /// wake at this interval, for signals that came just before the sleep or were only simulated.
  static constexpr std::int64_t SLICE_NS = 1'000'000'000;

  /// None waits without limit. Throws Error INVALID_PARAMETER for a negative number or NaN.
  explicit Deadline(std::optional<double> seconds) : timeout_(seconds) {
    if (!seconds) return;
    if (!(*seconds >= 0.0)) {
      throw Error(Status::INVALID_PARAMETER,
                  "timeout is " + std::to_string(*seconds) +
                      "; give seconds from 0 on, or None to wait without limit");
    }
    restart();
  }

  /// Restarts the timeout from now.
  void restart() noexcept {
    constexpr double LONGEST_S = 1e9;
    if (timeout_)
      end_ns_ = monotonic_ns() + static_cast<std::uint64_t>(std::min(*timeout_, LONGEST_S) * 1e9);
  }
  [[nodiscard]] bool passed() const noexcept {
    return timeout_ && (*timeout_ == 0.0 || monotonic_ns() >= end_ns_);
  }
  /// How long to sleep before the next check, in ns.
  [[nodiscard]] std::int64_t slice(std::int64_t longest = SLICE_NS) const noexcept {
    if (!timeout_) return longest;
    const std::uint64_t now = monotonic_ns();
    return now >= end_ns_ ? 0 : std::min(longest, static_cast<std::int64_t>(end_ns_ - now));
  }

 private:
  std::optional<double> timeout_;
  std::uint64_t end_ns_{0};
};

/// Calls `step` without the lock until it returns false. Ctrl-C interrupts it.
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
