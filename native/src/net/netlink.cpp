#include "net/netlink.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "system/file.h"

namespace daqiri {

namespace {

[[noreturn]] void fail(const char* what, int error) {
  throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

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

NetlinkAttributes NetlinkAttributes::nested(int type) const noexcept {
  const rtattr* found = find(type);
  if (found == nullptr) return {nullptr, 0};
  return {RTA_DATA(found), RTA_PAYLOAD(found)};
}

void NetlinkRequest::append(const void* data, std::size_t bytes) {
  const std::size_t at = body_.size();
  body_.resize(at + NLMSG_ALIGN(bytes));
  if (bytes > 0) std::memcpy(body_.data() + at, data, bytes);
}

void NetlinkRequest::add(std::uint16_t attribute, const void* data, std::size_t bytes) {
  const rtattr header{static_cast<std::uint16_t>(RTA_LENGTH(bytes)), attribute};
  append(&header, sizeof(header));
  append(data, bytes);
}

void NetlinkRequest::ask(const std::function<void(const nlmsghdr&)>& answer) const {
  const File netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!netlink.is_open()) fail("no netlink socket", errno);
  const timeval patience{2, 0};
  setsockopt(netlink.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  nlmsghdr header{};
  header.nlmsg_len = static_cast<std::uint32_t>(NLMSG_HDRLEN + body_.size());
  header.nlmsg_type = type_;
  header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags_);
  std::vector<std::byte> message(NLMSG_HDRLEN);
  std::memcpy(message.data(), &header, sizeof(header));
  message.insert(message.end(), body_.begin(), body_.end());
  if (send(netlink.fd(), message.data(), message.size(), 0) < 0) fail("netlink", errno);
  alignas(nlmsghdr) std::array<std::byte, 65536> buffer;
  for (;;) {
    const ssize_t n = recv(netlink.fd(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("netlink", errno);
    std::size_t at = 0;
    const auto bytes = static_cast<std::size_t>(n);
    while (at + sizeof(nlmsghdr) <= bytes) {
      const auto& one = *reinterpret_cast<const nlmsghdr*>(buffer.data() + at);
      if (one.nlmsg_len < sizeof(nlmsghdr) || one.nlmsg_len > bytes - at) fail("netlink", EBADMSG);
      if (one.nlmsg_type == NLMSG_DONE) return;
      if (one.nlmsg_type == NLMSG_ERROR) {
        const auto& error = *static_cast<const nlmsgerr*>(NLMSG_DATA(&one));
        fail("netlink", -error.error);
      }
      answer(one);
      if ((one.nlmsg_flags & NLM_F_MULTI) == 0) return;
      at += NLMSG_ALIGN(one.nlmsg_len);
    }
  }
}

}  // namespace daqiri
