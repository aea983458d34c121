/// Waits for events of sockets.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "system/file.h"

namespace daqiri {

/// Events of sockets and of a timer, on one descriptor that is readable while events are pending
/// (epoll).
class SocketEvents {
 public:
  /// Throws Error with `owner` ("queue 'rx0'").
  explicit SocketEvents(const std::string& owner);

  [[nodiscard]] int fd() const noexcept { return events_.fd(); }
  /// From now on wait for these epoll(7) events instead of earlier ones. Returns errno, 0: done.
  int watch(int socket, std::uint32_t events, void* subject = nullptr) noexcept;
  void forget(int socket) noexcept;
  /// Any thread: cause an event without subject, now or after this many ns. Replaces an earlier
  /// call.
  void wake(std::uint64_t after_ns = 1) noexcept;
  /// Wait for events for at most `timeout_ms` (-1: no limit); returns the number of events written
  /// to `events`.
  std::size_t take(std::span<epoll_event> events, int timeout_ms = 0) noexcept;

 private:
  File events_;
  File timer_;
};

/// A descriptor that becomes readable (poll(2), POLLIN) when there is work. Made only of what does
/// so: the socket of a sender never becomes readable.
class Readiness {
 public:
  /// None: there is no notification.
  constexpr Readiness() = default;
  explicit Readiness(const SocketEvents& events) noexcept : fd_(events.fd()) {}
  /// Readable while packets wait in a socket.
  static Readiness of_arrivals(int socket) noexcept { return Readiness(socket); }

  explicit operator bool() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  explicit Readiness(int fd) noexcept : fd_(fd) {}

  int fd_{-1};
};

}  // namespace daqiri
