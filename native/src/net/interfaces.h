/// Network interfaces of the kernel.
#pragma once

#include <cstdint>
#include <string>

#include "daqiri/config.h"
#include "system/file.h"

namespace daqiri {

/// Names of all that the calling thread's network namespace has, for messages: "lo, eth0".
[[nodiscard]] std::string interfaces_of_this_host();

/// Throws Error NOT_SUPPORTED if the interface merges datagrams: frames would arrive that nobody
/// has sent, of up to 64 KiB.
void refuse_merging(const InterfaceConfig& config, const std::string& interface);

/// Whether others take frames of this interface, or look at them, after packet sockets: a bridge, a
/// bond, VLANs, macvlan, filters (tc). Throws std::system_error.
[[nodiscard]] bool has_other_takers(const File& netlink, int interface);

/// What the kernel tells of a tap (IFLA_TUN_ of linux/if_link.h).
struct TapState {
  /// Whether there is an interface of that name; whether it is a tap.
  bool exists{false};
  bool is_tap{false};
  /// Whether several programs can be attached.
  bool multi_queue{false};
  /// Queues of programs that are attached, of a tap with multi_queue.
  std::uint32_t queues{0};

  /// Throws Error.
  static TapState of(const std::string& interface);
};

}  // namespace daqiri
