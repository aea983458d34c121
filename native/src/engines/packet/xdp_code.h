/// Generates XDP programs as instructions of the kernel's virtual machine (bpf(2)); no compiler is
/// needed.
#pragma once

#include <linux/bpf.h>

#include <vector>

#include "engines/packet/xdp_filter.h"

namespace daqiri::packet {

/// Free bytes that a program needs before a frame to store the time.
inline constexpr unsigned XDP_TIME_BYTES = 8;

/// File descriptors of the maps that a program uses.
struct XdpMaps {
  /// AF_XDP sockets by NIC queue (BPF_MAP_TYPE_XSKMAP).
  int sockets{-1};
  /// XdpFilter::tables, the value of the only element (BPF_MAP_TYPE_ARRAY).
  int tables{-1};
  /// XdpFilter::addresses, the keys (BPF_MAP_TYPE_HASH).
  int addresses{-1};
};

/// Frames that match the filter go to the socket of their NIC queue, with the time
/// (CLOCK_MONOTONIC, ns) in the XDP_TIME_BYTES before them, if the driver has space there.
/// `otherwise`: action for frames of a queue without a socket; the kernel gets all other frames.
std::vector<bpf_insn> xdp_code(const XdpFilter& filter, const XdpMaps& maps,
                               xdp_action otherwise = XDP_PASS);

}  // namespace daqiri::packet
