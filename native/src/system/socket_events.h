/// Waiting for sockets.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "system/file.h"

namespace daqiri {

/// Events of sockets and a timer, on one descriptor that is readable while any of them waits to be
/// taken (epoll).
class SocketEvents {
 public:
  /// Throws Error; `owner` ("queue 'rx0'") is named in it.
  explicit SocketEvents(const std::string& owner);

  [[nodiscard]] int fd() const noexcept { return events_.fd(); }
  /// From now on wait for these epoll(7) events instead of earlier ones. Returns errno, 0: done.
  int watch(int socket, std::uint32_t events, void* subject = nullptr) noexcept;
  void forget(int socket) noexcept;
  /// Any thread: an event without subject, now or in so many ns. A later call replaces an earlier.
  void wake(std::uint64_t after_ns = 1) noexcept;
  /// Waits for an event for at most `timeout_ms` (-1: for ever); returns how many it has put into
  /// `events`.
  std::size_t take(std::span<epoll_event> events, int timeout_ms = 0) noexcept;

 private:
  File events_;
  File timer_;
};

}  // namespace daqiri
