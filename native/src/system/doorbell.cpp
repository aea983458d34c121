#include "system/doorbell.h"

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include "daqiri/error.h"

namespace daqiri {

namespace {

timespec time_of(std::int64_t ns) noexcept { return {ns / 1'000'000'000, ns % 1'000'000'000}; }

}  // namespace

File make_eventfd() {
  File event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (event.is_open()) return event;
  throw Error(Status::GENERIC_FAILURE, std::string("cannot create an eventfd: ") +
                                           std::strerror(errno) +
                                           "; raise the limit on open files (ulimit -n)");
}

void ring_eventfd(int fd) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(fd, &one, sizeof one);
}

bool Doorbell::wait(std::int64_t timeout_ns, std::span<const int> fds) noexcept {
  polled_.clear();
  polled_.push_back({fd(), POLLIN, 0});
  for (const int fd : fds.first(std::min(fds.size(), polled_.capacity() - 1)))
    polled_.push_back({fd, POLLIN, 0});
  const timespec limit = time_of(timeout_ns);
  const int ready =
      ppoll(polled_.data(), polled_.size(), timeout_ns >= 0 ? &limit : nullptr, nullptr);
  const bool interrupted = ready < 0 && errno == EINTR;
  if (ready > 0 && (polled_[0].revents & POLLIN) != 0) {
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t n = ::read(fd(), &rings, sizeof rings);
  }
  cancel();
  return !interrupted;
}

bool WaitQueue::wait(Ticket ticket, std::int64_t timeout_ns) noexcept {
  const timespec limit = time_of(timeout_ns);
  static_assert(sizeof rings_ == sizeof(Ticket));
  const long result = syscall(SYS_futex, &rings_, FUTEX_WAIT_PRIVATE, ticket,
                              timeout_ns >= 0 ? &limit : nullptr, nullptr, 0);
  return result == 0 || errno != EINTR;
}

void WaitQueue::wake() noexcept {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &rings_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace daqiri
