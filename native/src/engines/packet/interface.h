/// A Linux network interface, and sockets that receive its frames (packet(7)).
#pragma once

#include <net/if_arp.h>

#include <array>
#include <cstdint>
#include <string>

#include "daqiri/config.h"
#include "daqiri/error.h"
#include "system/file.h"

namespace daqiri::packet {

/// Link types with Ethernet frames.
inline constexpr std::uint16_t LINK_TYPES[] = {ARPHRD_ETHER, ARPHRD_LOOPBACK};

/// Properties of an Ethernet interface, as reported by the kernel.
struct NetworkInterface {
  std::string name;
  int index{0};
  std::uint32_t mtu{0};
  bool up{false};
  /// Whether it removes VLAN tags from received frames (rxvlan of ethtool).
  bool takes_tags_out{false};
  std::array<std::uint8_t, 6> mac{};

  /// The interface of `address` in a configuration. Throws Error INVALID_PARAMETER if this host
  /// does not have it, or if it is not an Ethernet interface.
  static NetworkInterface of(const InterfaceConfig& config);
};

/// Status and text for an errno of a packet socket; the text names the interface, the failed action
/// and the remedy.
Error packet_error(const NetworkInterface& interface, const std::string& what, int error);

/// Open a packet socket that receives nothing yet. Throws Error.
File open_packet_socket(const NetworkInterface& interface);

/// Bind it to the interface. `protocol` as in socket(2), host order; 0: the present one, that of a
/// new socket receives nothing. Throws Error.
void bind_packet_socket(const File& socket, const NetworkInterface& interface,
                        std::uint16_t protocol);

/// Receive frames for all addresses on the interface while the socket is open, or until
/// `end_promiscuous`. Throws Error.
void make_promiscuous(const File& socket, const NetworkInterface& interface);
void end_promiscuous(const File& socket, const NetworkInterface& interface) noexcept;

}  // namespace daqiri::packet
