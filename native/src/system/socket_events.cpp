#include "system/socket_events.h"

#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "daqiri/error.h"

namespace daqiri {

SocketEvents::SocketEvents(const std::string& owner)
    : events_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  if (!events_.is_open() || !timer_.is_open() || watch(timer_.fd(), EPOLLIN | EPOLLET) != 0) {
    throw Error(Status::GENERIC_FAILURE, owner + ": no epoll descriptor: " + std::strerror(errno) +
                                             "; raise the limit on open files (ulimit -n)");
  }
}

int SocketEvents::watch(int socket, std::uint32_t events, void* subject) noexcept {
  epoll_event event{events, {.ptr = subject}};
  if (epoll_ctl(events_.fd(), EPOLL_CTL_MOD, socket, &event) == 0) return 0;
  return epoll_ctl(events_.fd(), EPOLL_CTL_ADD, socket, &event) == 0 ? 0 : errno;
}

void SocketEvents::forget(int socket) noexcept {
  epoll_ctl(events_.fd(), EPOLL_CTL_DEL, socket, nullptr);
}

void SocketEvents::wake(std::uint64_t after_ns) noexcept {
  constexpr std::uint64_t SECOND = 1'000'000'000;
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(after_ns / SECOND);
  // 0 would stop the timer.
  when.it_value.tv_nsec = static_cast<long>(std::max<std::uint64_t>(after_ns, 1) % SECOND);
  timerfd_settime(timer_.fd(), 0, &when, nullptr);
}

std::size_t SocketEvents::take(std::span<epoll_event> events, int timeout_ms) noexcept {
  const int n =
      epoll_wait(events_.fd(), events.data(), static_cast<int>(events.size()), timeout_ms);
  return n > 0 ? static_cast<std::size_t>(n) : 0;
}

}  // namespace daqiri
