/// Queries the kernel about network interfaces (rtnetlink).
#pragma once

#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "system/file.h"

namespace daqiri {

/// The attributes of a message, on one nesting level.
class NetlinkAttributes {
 public:
  NetlinkAttributes(const void* first, std::size_t bytes) noexcept
      : first_(static_cast<const rtattr*>(first)), bytes_(bytes) {}

  /// Null: not found.
  [[nodiscard]] const rtattr* find(int type) const noexcept {
    auto left = static_cast<int>(bytes_);
    for (const rtattr* one = first_; RTA_OK(one, left); one = RTA_NEXT(one, left))
      if ((one->rta_type & NLA_TYPE_MASK) == type) return one;
    return nullptr;
  }
  /// The value, or `otherwise` if it is missing or shorter than T.
  template <typename T>
  [[nodiscard]] T value(int type, T otherwise) const noexcept {
    const rtattr* found = find(type);
    if (found != nullptr && RTA_PAYLOAD(found) >= sizeof(T))
      std::memcpy(&otherwise, RTA_DATA(found), sizeof(T));
    return otherwise;
  }

 private:
  const rtattr* first_;
  std::size_t bytes_;
};

inline std::system_error netlink_error(int error) {
  return {error, std::generic_category(), "netlink"};
}

/// A socket for requests that concern the network namespace of the calling thread, also if other
/// threads use it later. Throws std::system_error.
inline File open_netlink() {
  File netlink = File::private_to_process(
      [] { return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE); });
  if (!netlink.is_open()) throw netlink_error(errno);
  const timeval patience{2, 0};
  setsockopt(netlink.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return netlink;
}

/// A request: header, fixed part, attributes; at most 256 bytes.
class NetlinkRequest {
 public:
  template <typename Fixed>
  NetlinkRequest(std::uint16_t type, int flags, const Fixed& fixed) noexcept {
    header().nlmsg_type = type;
    header().nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    header().nlmsg_len = NLMSG_LENGTH(sizeof(fixed));
    std::memcpy(NLMSG_DATA(&header()), &fixed, sizeof(fixed));
  }
  void add(std::uint16_t attribute, const void* data, std::size_t bytes) noexcept {
    const rtattr head{static_cast<std::uint16_t>(RTA_LENGTH(bytes)), attribute};
    std::byte* at = message_.data() + NLMSG_ALIGN(header().nlmsg_len);
    std::memcpy(at, &head, sizeof(head));
    if (bytes > 0) std::memcpy(at + RTA_LENGTH(0), data, bytes);
    header().nlmsg_len =
        static_cast<std::uint32_t>(NLMSG_ALIGN(header().nlmsg_len) + RTA_SPACE(bytes));
  }
  /// Send the request, and call `answer` with the fixed part and the attributes of each answer.
  /// Throws std::system_error with the kernel's error.
  template <typename Fixed, typename Answer>
  void ask(Answer&& answer) {
    ask<Fixed>(open_netlink(), std::forward<Answer>(answer));
  }
  /// Ask through a socket of `open_netlink`, which one thread at a time uses.
  template <typename Fixed, typename Answer>
  void ask(const File& netlink, Answer&& answer) {
    // Answers to a request that was given up may still be in the socket.
    static std::atomic<std::uint32_t> latest{0};
    header().nlmsg_seq = ++latest;
    if (send(netlink.fd(), &header(), header().nlmsg_len, 0) < 0) throw netlink_error(errno);
    std::vector<nlmsghdr> buffer(65536 / sizeof(nlmsghdr));
    for (;;) {
      // Counters of an interface are read under a lock: the kernel answers at once.
      // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection)
      const ssize_t n = recv(netlink.fd(), buffer.data(), buffer.size() * sizeof(nlmsghdr), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw netlink_error(errno);
      auto left = static_cast<std::uint32_t>(n);
      for (const nlmsghdr* one = buffer.data(); NLMSG_OK(one, left); one = NLMSG_NEXT(one, left)) {
        if (one->nlmsg_seq != header().nlmsg_seq) continue;
        if (one->nlmsg_type == NLMSG_DONE) return;
        if (one->nlmsg_type == NLMSG_ERROR)
          throw netlink_error(-static_cast<const nlmsgerr*>(NLMSG_DATA(one))->error);
        if (one->nlmsg_len >= NLMSG_SPACE(sizeof(Fixed))) {
          const auto* fixed = static_cast<const std::byte*>(NLMSG_DATA(one));
          answer(*reinterpret_cast<const Fixed*>(fixed),
                 NetlinkAttributes(fixed + NLMSG_ALIGN(sizeof(Fixed)),
                                   one->nlmsg_len - NLMSG_SPACE(sizeof(Fixed))));
        }
        if ((one->nlmsg_flags & NLM_F_MULTI) == 0) return;
      }
    }
  }

 private:
  [[nodiscard]] nlmsghdr& header() noexcept {
    return *reinterpret_cast<nlmsghdr*>(message_.data());
  }

  alignas(nlmsghdr) std::array<std::byte, 256> message_{};
};

}  // namespace daqiri
