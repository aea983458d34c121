/// Headers of a UDP packet in the layout of the frame.
#pragma once

#include <linux/if_ether.h>
#include <netinet/ip.h>
#include <netinet/udp.h>

namespace daqiri {

/// \addtogroup bursts
/// \{

/// Ethernet, IPv4 without options, UDP: the first 42 bytes of a frame. Fields are in network byte
/// order.
struct UDPIPV4Pkt {
  /// Ethernet header.
  ethhdr eth;
  /// IPv4 header.
  iphdr ip;
  /// UDP header.
  udphdr udp;
} __attribute__((packed));

static_assert(sizeof(UDPIPV4Pkt) == 42, "headers lie in the frame without gaps");

/// \}

}  // namespace daqiri
