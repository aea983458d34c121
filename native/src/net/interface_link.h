/// Carrier, speed and MTU of a network interface.
#pragma once

#include <cstdint>
#include <string>

#include "system/file.h"

namespace daqiri {

/// State of a port's network interface, as reported by the kernel.
struct LinkState {
  /// "up", "down" (switched off, or no carrier), "removed", "none" (the port has no interface).
  const char* state{"none"};
  /// Mb/s; 0: unknown.
  std::uint32_t speed{0};
  /// Bytes; 0: unknown.
  std::uint32_t mtu{0};
};

struct LinkFlags {
  /// IFF_UP, IFF_RUNNING and others (netdevice(7)); negative: the interface was removed.
  int flags{-1};
  /// Bytes; 0: unknown.
  std::uint32_t mtu{0};
};

/// Queries the kernel, in the network namespace in which it was made. Any thread.
class InterfaceLink {
 public:
  /// `name`: for messages. `for_packet_sockets`: an interface that was removed stays so, also if it
  /// comes back from another network namespace, as it does for them. Throws Error.
  InterfaceLink(int index, const std::string& name, bool for_packet_sockets);

  /// The current state.
  [[nodiscard]] LinkState state() const noexcept;
  /// What decides whether frames can be sent; takes less time than `state`.
  [[nodiscard]] LinkFlags flags() const noexcept;

 private:
  /// Packet sockets have lost it.
  [[nodiscard]] bool is_lost() const noexcept;

  int index_;
  File socket_;
  /// Receives nothing. Not open: there is none.
  File packet_socket_;
};

}  // namespace daqiri
