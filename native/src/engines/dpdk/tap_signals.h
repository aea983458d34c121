/// The signals by which a net_tap learns of packets.
#pragma once

namespace daqiri::dpdk {

/// Send those of a tap to DPDK's own thread. Its driver asks the kernel for a signal per packet
/// (O_ASYNC, F_SETOWN) to any thread of the process, and the waits of the program's threads would
/// end each time. `interface`: of the kernel.
void take_tap_signals(unsigned interface) noexcept;

}  // namespace daqiri::dpdk
