/// A Linux network interface, and sockets that see its frames (packet(7)).
#pragma once

#include <net/if_arp.h>

#include <array>
#include <cstdint>
#include <string>

#include "daqiri/config.h"
#include "daqiri/error.h"
#include "system/file.h"

namespace daqiri::packet {

/// Of interfaces with Ethernet frames.
inline constexpr std::uint16_t LINK_TYPES[] = {ARPHRD_ETHER, ARPHRD_LOOPBACK};

/// What the kernel says of a network interface that has Ethernet frames.
struct NetworkInterface {
  std::string name;
  int index{0};
  std::uint32_t mtu{0};
  bool up{false};
  /// It takes VLAN tags out of received frames (rxvlan of ethtool).
  bool takes_tags_out{false};
  std::array<std::uint8_t, 6> mac{};

  /// `address` of the interface of a configuration. Throws Error INVALID_PARAMETER for one that
  /// this host does not have, or that has no Ethernet frames.
  static NetworkInterface of(const InterfaceConfig& config);
};

/// Status and text for an errno of a packet socket; the text names the interface, what was asked
/// for, and how to mend it.
Error packet_error(const NetworkInterface& interface, const std::string& what, int error);

/// A packet socket that sees nothing yet. Throws Error.
File open_packet_socket(const NetworkInterface& interface);

/// Binds it to the interface. `protocol` as in socket(2), host order; 0: it only sends. Throws
/// Error.
void bind_packet_socket(const File& socket, const NetworkInterface& interface,
                        std::uint16_t protocol);
/// As above. Returns errno, 0: done.
int rebind_packet_socket(const File& socket, const NetworkInterface& interface,
                         std::uint16_t protocol) noexcept;

/// The interface receives frames for all addresses as long as the socket is open, or until
/// `end_promiscuous`. Throws Error.
void make_promiscuous(const File& socket, const NetworkInterface& interface);
void end_promiscuous(const File& socket, const NetworkInterface& interface) noexcept;

}  // namespace daqiri::packet
