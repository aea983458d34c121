/// Frames that packet sockets receive, and that the kernel counts as dropped all the same.
#pragma once

#include <cstdint>

#include "net/packet_socket.h"
#include "system/file.h"

namespace daqiri {

/// Frames with a VLAN tag, of protocols other than IP and ARP, that arrive at an interface.
///
/// Once packet sockets have a frame, the kernel removes its tag and looks for the tag's VLAN and
/// for the protocol; of a frame that nobody else wants it adds one to `rx_dropped` (without a tag
/// it does not). Whether somebody wants it, is not known here. One thread at a time.
class UnknownProtocols {
 public:
  /// Throws std::system_error.
  explicit UnknownProtocols(int interface);

  /// Since the last call. The kernel counts a frame here before it counts it as dropped.
  [[nodiscard]] std::uint64_t fresh() noexcept {
    return packet_statistics(socket_.fd()).tp_packets;
  }
  /// See `has_interface`.
  [[nodiscard]] bool has_interface() const noexcept { return daqiri::has_interface(socket_); }

 private:
  /// Never read: the kernel also counts the frames that find no space in it.
  File socket_;
};

}  // namespace daqiri
