/// Waking a thread that sleeps until there is work.
#pragma once

#include <atomic>
#include <cstdint>

namespace daqiri {

/// An eventfd that is written only while somebody sleeps on it.
///
/// A sleeper calls `prepare`, looks once more for work, then either `cancel`s or `wait`s. `ring`
/// after making work visible then never misses a sleeper, and costs no system call when nobody
/// sleeps.
class Doorbell {
 public:
  Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;
  ~Doorbell();

  void prepare() noexcept { sleepers_.fetch_add(1, std::memory_order_seq_cst); }
  void cancel() noexcept { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }
  /// Sleep until rung, until one of `fds` is readable, or for `timeout_ns` (negative: no limit).
  /// Ends the preparation. Returns false when interrupted by a signal.
  bool wait(std::int64_t timeout_ns, const int* fds = nullptr, int num_fds = 0) noexcept;

  void ring() noexcept {
    if (sleepers_.fetch_add(0, std::memory_order_seq_cst) > 0) wake();
  }
  /// For event loops: readable after a ring while `prepare`d.
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  void wake() noexcept;

  int fd_;
  std::atomic<int> sleepers_{0};
};

}  // namespace daqiri
