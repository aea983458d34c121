/// Wakes threads that sleep until there is work.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "system/file.h"

namespace daqiri {

/// Throws Error with the limit on open files.
File make_eventfd();
void ring_eventfd(int fd) noexcept;

/// An eventfd that is written only while its only thread sleeps.
///
/// The sleeper calls `prepare`, checks once more for work, then calls `cancel` or `wait`. If `ring`
/// is called after work was made visible, the sleeper never misses it; `ring` needs no system call
/// while no thread sleeps.
class Doorbell {
 public:
  Doorbell() { reserve(0); }

  void prepare() noexcept { sleepers_.fetch_add(1, std::memory_order_seq_cst); }
  void cancel() noexcept { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }
  /// Reserve space for waiting for `n` other descriptors. Throws std::bad_alloc.
  void reserve(std::size_t n) { polled_.reserve(n + 1); }
  /// Sleep until rung, until one of `fds` is readable (limited to the reserved number), or for
  /// `timeout_ns` (negative: no limit). Ends the preparation. Returns false if a signal
  /// interrupted.
  bool wait(std::int64_t timeout_ns, std::span<const int> fds = {}) noexcept;

  void ring() noexcept {
    if (sleepers_.fetch_add(0, std::memory_order_seq_cst) > 0) ring_eventfd(event_.fd());
  }
  /// For event loops: readable after a ring while `prepare`d.
  [[nodiscard]] int fd() const noexcept { return event_.fd(); }

 private:
  File event_{make_eventfd()};
  std::vector<pollfd> polled_;
  std::atomic<int> sleepers_{0};
};

/// Like Doorbell, for any number of sleepers; a ring wakes all of them (futex(2)).
class WaitQueue {
 public:
  /// State seen by `prepare`, for `wait`.
  using Ticket = std::uint32_t;

  /// Call before the last check for work; a sleeper that finds work need not wait.
  [[nodiscard]] Ticket prepare() noexcept {
    // In this order: a ring that clears the mark makes the ticket obsolete.
    const Ticket ticket = rings_.load(std::memory_order_seq_cst);
    // An exchange sees all work that was made visible before an earlier ring.
    marked_.exchange(true, std::memory_order_seq_cst);
    return ticket;
  }
  /// Sleep until a ring since `prepare`, or for `timeout_ns` (negative: no limit). Returns false if
  /// a signal interrupted.
  bool wait(Ticket ticket, std::int64_t timeout_ns) noexcept;
  /// Sleep in the same way, unless `ready()`.
  template <typename Ready>
  bool wait_unless(Ready&& ready, std::int64_t timeout_ns) noexcept {
    const Ticket ticket = prepare();
    return ready() || wait(ticket, timeout_ns);
  }

  /// One system call for any number of rings, until a thread prepares to sleep again.
  void ring() noexcept {
    if (marked_.exchange(false, std::memory_order_seq_cst)) wake();
  }

 private:
  void wake() noexcept;

  std::atomic<std::uint32_t> rings_{0};
  /// Whether a thread is sleeping or about to sleep.
  std::atomic<bool> marked_{false};
};

}  // namespace daqiri
