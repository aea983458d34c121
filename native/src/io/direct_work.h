/// The work of queues that have no thread (poll_mode: direct).
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

namespace daqiri {

/// Work that the callers of a queue do, one thread at a time.
class DirectWork {
 public:
  /// Of `work_or_wait`. ELSEWHERE: another thread is at it, or the work has ended.
  enum class Outcome : std::uint8_t { DONE, INTERRUPTED, ELSEWHERE };

  DirectWork() = default;
  DirectWork(const DirectWork&) = delete;
  DirectWork& operator=(const DirectWork&) = delete;
  virtual ~DirectWork() = default;

  /// Do what there is to do now; another thread that is at it does it instead. Any thread.
  void work() noexcept {
    for (int i = 0; i < MOST_STEPS && begin(); ++i) {
      step();
      if (end()) return;
    }
  }
  /// As above. Where there is nothing to do, wait for something, for `ns` at most, or until a
  /// signal interrupts. Any thread.
  Outcome work_or_wait(std::uint64_t ns) noexcept {
    if (!begin()) return Outcome::ELSEWHERE;
    const bool undisturbed = step_or_wait(ns);
    if (!end()) work();
    return undisturbed ? Outcome::DONE : Outcome::INTERRUPTED;
  }

 protected:
  /// Both by one thread at a time.
  virtual void step() noexcept = 0;
  /// False: interrupted by a signal.
  virtual bool step_or_wait(std::uint64_t ns) noexcept = 0;

  /// False: another thread has the work, and will look once more at its end.
  bool begin() noexcept {
    if (!taken_.exchange(true)) return true;
    again_.store(true);
    // It may have ended before it could see that.
    return !taken_.exchange(true);
  }
  /// Have the work for good. Whoever has it now knows that it is to end.
  void take_over() noexcept {
    const timespec moment{0, 50'000};
    while (taken_.exchange(true)) nanosleep(&moment, nullptr);
  }

 private:
  /// What others leave behind all the time keeps nobody for ever.
  static constexpr int MOST_STEPS = 64;

  /// False: somebody came meanwhile, and left something to do.
  bool end() noexcept {
    taken_.store(false);
    return !again_.exchange(false);
  }

  std::atomic<bool> taken_{false};
  std::atomic<bool> again_{false};
};

}  // namespace daqiri
