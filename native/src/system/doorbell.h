/// Waking threads that sleep until there is work.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "system/file.h"

namespace daqiri {

/// Throws Error, which names the limit on open files.
File make_eventfd();
void ring_eventfd(int fd) noexcept;

/// An eventfd that is written only while its one thread sleeps on it.
///
/// The sleeper calls `prepare`, checks once more for work, then either `cancel`s or `wait`s. `ring`
/// after making work visible then never misses it, and costs no system call when nobody sleeps.
class Doorbell {
 public:
  Doorbell() { reserve(0); }

  void prepare() noexcept { sleepers_.fetch_add(1, std::memory_order_seq_cst); }
  void cancel() noexcept { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }
  /// Make room for waiting for `n` other descriptors. Throws std::bad_alloc.
  void reserve(std::size_t n) { polled_.reserve(n + 1); }
  /// Sleep until rung, until one of `fds` is readable (as many as there is room for), or for
  /// `timeout_ns` (negative: no limit). Ends the preparation. Returns false when interrupted by a
  /// signal.
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

/// As Doorbell, for any number of sleepers, all of which a ring wakes (futex(2)).
class WaitQueue {
 public:
  /// What `prepare` saw, for `wait`.
  using Ticket = std::uint32_t;

  /// Before the last check for work; a sleeper that finds some need not wait.
  [[nodiscard]] Ticket prepare() noexcept {
    // In this order: a ring that takes the mark back makes the ticket old.
    const Ticket ticket = rings_.load(std::memory_order_seq_cst);
    // An exchange sees all work that came before a ring that it follows.
    marked_.exchange(true, std::memory_order_seq_cst);
    return ticket;
  }
  /// Sleep until there was a ring since `prepare`, or for `timeout_ns` (negative: no limit).
  /// Returns false when interrupted by a signal.
  bool wait(Ticket ticket, std::int64_t timeout_ns) noexcept;
  /// Sleep likewise, unless `ready()`.
  template <typename Ready>
  bool wait_unless(Ready&& ready, std::int64_t timeout_ns) noexcept {
    const Ticket ticket = prepare();
    return ready() || wait(ticket, timeout_ns);
  }

  /// One system call for any number of rings, until somebody prepares to sleep again.
  void ring() noexcept {
    if (marked_.exchange(false, std::memory_order_seq_cst)) wake();
  }

 private:
  void wake() noexcept;

  std::atomic<std::uint32_t> rings_{0};
  /// Somebody sleeps, or may be about to.
  std::atomic<bool> marked_{false};
};

}  // namespace daqiri
