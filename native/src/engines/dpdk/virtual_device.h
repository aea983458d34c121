/// What virtual devices of DPDK are to the kernel. Their drivers say little of what they lack.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "daqiri/config.h"
#include "daqiri/error.h"
#include "system/file.h"

namespace daqiri::dpdk {

/// "interface 'x': device 'y' ", for messages.
[[nodiscard]] std::string device_of(const InterfaceConfig& interface);
/// Throws Error: "interface 'x': device 'y' <what>; <fix>".
[[noreturn]] void refuse(const InterfaceConfig& interface, const std::string& what,
                         const std::string& fix, Status status = Status::INVALID_PARAMETER);

/// Of the kernel's taps.
inline constexpr const char* TUN = "/dev/net/tun";
/// Number of the group (PACKET_FANOUT) into which the driver net_af_packet puts the sockets of this
/// process on an interface of the kernel, which divides packets among all of a group.
[[nodiscard]] unsigned packet_group(unsigned interface) noexcept;

/// Address of a virtual device: "net_tap0,iface=dtap0".
class VirtualDevice {
 public:
  explicit VirtualDevice(const InterfaceConfig& interface);

  /// "net_tap0".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// "iface=dtap0".
  [[nodiscard]] const std::string& arguments() const noexcept { return arguments_; }
  /// Whether the driver has this name: "net_tap". DPDK compares the beginning, too.
  [[nodiscard]] bool is(std::string_view driver) const noexcept {
    return name_.starts_with(driver);
  }
  /// Value of an argument; nullopt: not given.
  [[nodiscard]] std::optional<std::string> argument(std::string_view key) const;

  /// Throws Error if the device belongs to a network interface that the kernel does not have, or
  /// whose frames are not those that arrived.
  void require_interface() const;
  /// Throws Error if the kernel lacks what the driver needs, or if packets would be shared with
  /// another device. The file is kept as long as the device exists: it keeps others from that.
  [[nodiscard]] File claim() const;
  /// Throws Error with the reason why it did not start, if that is known.
  void explain_failed_start() const;

 private:
  [[nodiscard]] File claim_tap() const;
  [[nodiscard]] File claim_packet_sockets() const;
  /// Remove the socket that the driver is about to serve, if its server was killed: the name would
  /// be taken. Throws Error if another program serves it.
  [[nodiscard]] File claim_socket(std::string_view key) const;
  /// Throws Error unless programs may do what the driver does.
  void require_privilege(bool granted) const;

  const InterfaceConfig& interface_;
  std::string name_;
  std::string arguments_;
};

}  // namespace daqiri::dpdk
