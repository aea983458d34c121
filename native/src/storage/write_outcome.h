/// Result of a write in the background.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "daqiri/status.h"

namespace daqiri {

/// Set once by the writing thread; others wait for it.
class WriteOutcome {
 public:
  WriteOutcome() = default;
  WriteOutcome(const WriteOutcome&) = delete;
  WriteOutcome& operator=(const WriteOutcome&) = delete;

  [[nodiscard]] bool done() const noexcept { return status() != Status::NOT_READY; }
  /// Wait until done, at most `timeout_ns` (negative: no limit). Returns done().
  bool wait(std::int64_t timeout_ns = -1) noexcept {
    std::unique_lock lock(mutex_);
    constexpr std::int64_t FOREVER = std::int64_t{1} << 60;
    const std::chrono::nanoseconds limit(timeout_ns < 0 ? FOREVER : std::min(timeout_ns, FOREVER));
    return ended_.wait_for(lock, limit, [this] { return done(); });
  }
  /// NOT_READY until done, then SUCCESS, or why it failed.
  [[nodiscard]] Status status() const noexcept { return status_.load(std::memory_order_acquire); }
  /// Text of the error; empty: none.
  [[nodiscard]] std::string error() const { return done() ? error_ : std::string(); }

 protected:
  ~WriteOutcome() = default;
  void finish(Status status, std::string error) noexcept {
    error_ = std::move(error);
    {
      const std::lock_guard lock(mutex_);
      status_.store(status, std::memory_order_release);
    }
    ended_.notify_all();
  }

 private:
  /// Set before `status_`.
  std::string error_;
  std::atomic<Status> status_{Status::NOT_READY};
  std::mutex mutex_;
  std::condition_variable ended_;
};

}  // namespace daqiri
