/// Sizes of the frames that buffers, tags, tunnels and sockets of a configuration imply.
#pragma once

#include <cstdint>

#include "daqiri/config.h"

namespace daqiri::steering {

/// MTU of the network interface that packets as long as the buffers of its queues call for, in
/// bytes; 0: any. A UDP datagram may also be limited by max_payload_size; TCP fits any MTU. For raw
/// frames, buffers of up to 2048 bytes are the usual ones and say nothing about the packets:
/// these count as standard frames where a transmit flow adds headers to them. Buffers may be larger
/// than any frame: no more than 9000, and what the flow adds.
[[nodiscard]] std::uint32_t mtu_needed(const NetworkConfig& config,
                                       const InterfaceConfig& interface);

/// Fewest bytes that flows remove from each packet of a receive queue; 0 also for a queue that
/// receives packets without a flow.
[[nodiscard]] std::uint32_t least_removed(const InterfaceConfig& interface, int queue);

}  // namespace daqiri::steering
