/// The work of queues that have no thread (poll_mode: direct).
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

namespace daqiri {

/// Work that the callers of a queue do, one thread at a time.
class DirectWork {
 public:
  /// Result of `work_or_wait`. ELSEWHERE: another thread is working, or the work has ended.
  enum class Outcome : std::uint8_t { DONE, INTERRUPTED, ELSEWHERE };

  DirectWork() = default;
  DirectWork(const DirectWork&) = delete;
  DirectWork& operator=(const DirectWork&) = delete;
  virtual ~DirectWork() = default;

  /// Do the pending work. If another thread is working, that thread does it. Any thread.
  void work() noexcept {
    for (int i = 0; i < MOST_STEPS && begin(); ++i) {
      step();
      if (end()) return;
    }
  }
  /// Like `work`. If there is nothing to do, wait for work, at most `ns` or until a signal
  /// interrupts. Any thread.
  Outcome work_or_wait(std::uint64_t ns) noexcept {
    if (!begin()) return Outcome::ELSEWHERE;
    const bool undisturbed = step_or_wait(ns);
    if (!end()) work();
    return undisturbed ? Outcome::DONE : Outcome::INTERRUPTED;
  }

 protected:
  /// `step` and `step_or_wait` are called by one thread at a time.
  virtual void step() noexcept = 0;
  /// Returns false if a signal interrupted.
  virtual bool step_or_wait(std::uint64_t ns) noexcept = 0;

  /// Returns false if another thread is working; it checks for new work before it ends.
  bool begin() noexcept {
    if (!taken_.exchange(true)) return true;
    again_.store(true);
    // That thread may have ended before it saw `again_`.
    return !taken_.exchange(true);
  }
  /// Acquire the work permanently. The thread that has it now already knows that it must end.
  void take_over() noexcept {
    const timespec moment{0, 50'000};
    while (taken_.exchange(true)) nanosleep(&moment, nullptr);
  }

 private:
  /// Limit, so that a caller returns even if other threads add work all the time.
  static constexpr int MOST_STEPS = 64;

  /// Returns false if another thread added work in the meantime.
  bool end() noexcept {
    taken_.store(false);
    return !again_.exchange(false);
  }

  std::atomic<bool> taken_{false};
  std::atomic<bool> again_{false};
};

}  // namespace daqiri
