/// XDP programs in the instructions of the kernel's virtual machine (bpf(2)); no compiler is
/// needed.
#pragma once

#include <linux/bpf.h>

#include <vector>

#include "engines/packet/xdp_filter.h"

namespace daqiri::packet {

/// Free bytes that a program needs before a frame; it leaves the time there.
inline constexpr unsigned XDP_TIME_BYTES = 8;

/// Maps that a program refers to, by descriptor.
struct XdpMaps {
  /// AF_XDP sockets by NIC queue (BPF_MAP_TYPE_XSKMAP).
  int sockets{-1};
  /// XdpFilter::tables, the value of the only element (BPF_MAP_TYPE_ARRAY).
  int tables{-1};
  /// XdpFilter::addresses, the keys (BPF_MAP_TYPE_HASH).
  int addresses{-1};
};

/// Frames that the filter takes go to the socket of the queue on which they came, with the time
/// (CLOCK_MONOTONIC, ns) in XDP_TIME_BYTES before them, where the driver has room there.
/// `otherwise` happens to those of a queue without a socket; the kernel gets the rest.
std::vector<bpf_insn> xdp_code(const XdpFilter& filter, const XdpMaps& maps,
                               xdp_action otherwise = XDP_PASS);

}  // namespace daqiri::packet
