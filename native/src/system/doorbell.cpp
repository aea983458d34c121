#include "system/doorbell.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "daqiri/error.h"

namespace daqiri {

Doorbell::Doorbell() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0) {
    throw Error(Status::GENERIC_FAILURE, std::string("cannot create an eventfd: ") +
                                             std::strerror(errno) +
                                             "; raise the limit on open files (ulimit -n)");
  }
}

Doorbell::~Doorbell() { ::close(fd_); }

bool Doorbell::wait(std::int64_t timeout_ns, const int* fds, int num_fds) noexcept {
  constexpr int MAX_FDS = 64;
  std::array<pollfd, MAX_FDS + 1> polled{};
  polled[0] = {fd_, POLLIN, 0};
  const int others = std::min(num_fds, MAX_FDS);
  for (int i = 0; i < others; ++i) polled[static_cast<std::size_t>(i) + 1] = {fds[i], POLLIN, 0};
  timespec limit{};
  if (timeout_ns >= 0) {
    limit.tv_sec = timeout_ns / 1'000'000'000;
    limit.tv_nsec = timeout_ns % 1'000'000'000;
  }
  const int ready = ppoll(polled.data(), static_cast<nfds_t>(others) + 1,
                          timeout_ns >= 0 ? &limit : nullptr, nullptr);
  const bool interrupted = ready < 0 && errno == EINTR;
  if (ready > 0 && (polled[0].revents & POLLIN) != 0) {
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t n = ::read(fd_, &rings, sizeof rings);
  }
  cancel();
  return !interrupted;
}

void Doorbell::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(fd_, &one, sizeof one);
}

}  // namespace daqiri
