/// Questions to the kernel about network interfaces (rtnetlink).
#pragma once

#include <linux/rtnetlink.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace daqiri {

/// The attributes of a message, of one nesting level.
class NetlinkAttributes {
 public:
  NetlinkAttributes(const void* first, std::size_t bytes) noexcept
      : first_(static_cast<const std::byte*>(first)), bytes_(bytes) {}

  /// Null: there is none.
  [[nodiscard]] const rtattr* find(int type) const noexcept;
  /// The value, or `otherwise` where it is missing or shorter than a T.
  template <typename T>
  [[nodiscard]] T value(int type, T otherwise) const noexcept {
    const rtattr* found = find(type);
    if (found != nullptr && RTA_PAYLOAD(found) >= sizeof(T))
      std::memcpy(&otherwise, RTA_DATA(found), sizeof(T));
    return otherwise;
  }

 private:
  const std::byte* first_;
  std::size_t bytes_;
};

/// A request under construction: header, fixed part, attributes; 256 bytes at most.
class NetlinkRequest {
 public:
  template <typename Fixed>
  NetlinkRequest(std::uint16_t type, int flags, const Fixed& fixed) noexcept {
    header().nlmsg_type = type;
    header().nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    header().nlmsg_len = NLMSG_LENGTH(sizeof(fixed));
    std::memcpy(NLMSG_DATA(&header()), &fixed, sizeof(fixed));
  }
  void add(std::uint16_t attribute, const void* data, std::size_t bytes) noexcept;
  /// Sends it, and calls `answer` with the fixed part and the attributes of each answer. Throws
  /// std::system_error with the kernel's refusal.
  template <typename Fixed>
  void ask(const std::function<void(const Fixed&, const NetlinkAttributes&)>& answer) const {
    exchange([&](const nlmsghdr& message) {
      if (message.nlmsg_len < NLMSG_SPACE(sizeof(Fixed))) return;
      const auto* fixed = static_cast<const std::byte*>(NLMSG_DATA(&message));
      answer(*reinterpret_cast<const Fixed*>(fixed),
             {fixed + NLMSG_ALIGN(sizeof(Fixed)), message.nlmsg_len - NLMSG_SPACE(sizeof(Fixed))});
    });
  }

 private:
  void exchange(const std::function<void(const nlmsghdr&)>& answer) const;
  [[nodiscard]] nlmsghdr& header() noexcept {
    return *reinterpret_cast<nlmsghdr*>(message_.data());
  }

  alignas(nlmsghdr) std::array<std::byte, 256> message_{};
};

}  // namespace daqiri
