/// Questions to the kernel about network interfaces (rtnetlink).
#pragma once

#include <linux/rtnetlink.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

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
    static_assert(std::is_trivially_copyable_v<T>);
    const rtattr* found = find(type);
    if (found == nullptr || RTA_PAYLOAD(found) < sizeof(T)) return otherwise;
    std::memcpy(&otherwise, RTA_DATA(found), sizeof(T));
    return otherwise;
  }
  [[nodiscard]] NetlinkAttributes nested(int type) const noexcept;

 private:
  const std::byte* first_;
  std::size_t bytes_;
};

/// A request under construction: header, fixed part, attributes.
class NetlinkRequest {
 public:
  template <typename Fixed>
  NetlinkRequest(std::uint16_t type, std::uint16_t flags, const Fixed& fixed)
      : type_(type), flags_(flags) {
    append(&fixed, sizeof(fixed));
  }
  void add(std::uint16_t attribute, const void* data, std::size_t bytes);
  /// Sends it and passes each answer's type, fixed part and length of the rest. Throws
  /// std::system_error with the kernel's answer.
  void ask(const std::function<void(const nlmsghdr&)>& answer) const;

 private:
  void append(const void* data, std::size_t bytes);

  std::uint16_t type_;
  std::uint16_t flags_;
  std::vector<std::byte> body_;
};

}  // namespace daqiri
