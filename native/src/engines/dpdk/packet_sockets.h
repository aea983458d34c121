/// The packet sockets of a net_af_packet: what its driver does not do with them.
#pragma once

#include <cstdint>
#include <vector>

namespace daqiri::dpdk {

/// Belong to the driver, which closes them with the device. Any thread.
class PacketSockets {
 public:
  PacketSockets() = default;
  /// Those of this process that are bound to an interface of the kernel, in the driver's group.
  explicit PacketSockets(unsigned interface);

  /// Receive no frames that this host sends. Throws Error.
  void leave_out_sent() const;
  /// Frames that found no space in their rings since the last call.
  [[nodiscard]] std::uint64_t dropped() const noexcept;
  /// Have the kernel send what is left in their rings. The driver asks once, and the kernel ends
  /// at the first frame for which the interface has no space now. Returns false if some are left.
  [[nodiscard]] bool push() const noexcept;

 private:
  std::vector<int> sockets_;
};

}  // namespace daqiri::dpdk
