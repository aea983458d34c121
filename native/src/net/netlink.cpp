#include "net/netlink.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "system/file.h"

namespace daqiri {

const rtattr* NetlinkAttributes::find(int type) const noexcept {
  std::size_t at = 0;
  while (at + sizeof(rtattr) <= bytes_) {
    const auto* attribute = reinterpret_cast<const rtattr*>(first_ + at);
    if (attribute->rta_len < sizeof(rtattr) || attribute->rta_len > bytes_ - at) break;
    if ((attribute->rta_type & NLA_TYPE_MASK) == type) return attribute;
    at += RTA_ALIGN(attribute->rta_len);
  }
  return nullptr;
}

void NetlinkRequest::add(std::uint16_t attribute, const void* data, std::size_t bytes) noexcept {
  const rtattr head{static_cast<std::uint16_t>(RTA_LENGTH(bytes)), attribute};
  std::byte* at = message_.data() + NLMSG_ALIGN(header().nlmsg_len);
  std::memcpy(at, &head, sizeof(head));
  if (bytes > 0) std::memcpy(at + RTA_LENGTH(0), data, bytes);
  header().nlmsg_len =
      static_cast<std::uint32_t>(NLMSG_ALIGN(header().nlmsg_len) + RTA_SPACE(bytes));
}

void NetlinkRequest::exchange(const std::function<void(const nlmsghdr&)>& answer) const {
  const auto fail = [](int error) {
    throw std::system_error(error, std::generic_category(), "netlink");
  };
  const File netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!netlink.is_open()) fail(errno);
  const timeval patience{2, 0};
  setsockopt(netlink.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const auto* request = reinterpret_cast<const nlmsghdr*>(message_.data());
  if (send(netlink.fd(), request, request->nlmsg_len, 0) < 0) fail(errno);
  std::vector<nlmsghdr> buffer(65536 / sizeof(nlmsghdr));
  for (;;) {
    const ssize_t n = recv(netlink.fd(), buffer.data(), buffer.size() * sizeof(nlmsghdr), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errno);
    auto left = static_cast<std::uint32_t>(n);
    for (const nlmsghdr* one = buffer.data(); NLMSG_OK(one, left); one = NLMSG_NEXT(one, left)) {
      if (one->nlmsg_type == NLMSG_DONE) return;
      if (one->nlmsg_type == NLMSG_ERROR)
        fail(-static_cast<const nlmsgerr*>(NLMSG_DATA(one))->error);
      answer(*one);
      if ((one->nlmsg_flags & NLM_F_MULTI) == 0) return;
    }
  }
}

}  // namespace daqiri
