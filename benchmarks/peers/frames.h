/// Ethernet frames of the benchmark programs: network devices, and frames with UDP to a port.
#pragma once

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cstdint>
#include <vector>

#include "peers/program.h"

namespace bench {

inline constexpr std::size_t FRAME_HEADERS = 42;

/// Index of a network device.
inline unsigned device_index(const char* name) {
  const unsigned index = if_nametoindex(name);
  if (index == 0) fail(name);
  return index;
}

/// Binds a packet socket to a device. `protocol`: ETH_P_ALL to receive all frames, 0 for none.
inline void bind_to_device(int fd, const char* device, std::uint16_t protocol) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(protocol);
  address.sll_ifindex = static_cast<int>(device_index(device));
  check(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
}

/// A frame to an address that no host has, so that the kernel drops it early.
inline std::vector<std::uint8_t> udp_frame(std::size_t size, std::uint16_t port) {
  std::vector<std::uint8_t> frame(size, 0);
  const auto put16 = [&](std::size_t at, std::size_t value) {
    frame[at] = static_cast<std::uint8_t>(value >> 8U);
    frame[at + 1] = static_cast<std::uint8_t>(value);
  };
  frame[0] = frame[6] = 0x02;
  frame[5] = 2;
  frame[11] = 1;
  put16(12, ETH_P_IP);
  put16(14, 0x4500);
  put16(16, size - 14);
  put16(22, 64 << 8 | IPPROTO_UDP);
  const std::uint8_t addresses[] = {192, 0, 2, 1, 192, 0, 2, 2};
  std::memcpy(&frame[26], addresses, sizeof addresses);
  std::uint32_t sum = 0;
  for (std::size_t at = 14; at < 34; at += 2) sum += frame[at] << 8U | frame[at + 1];
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16U);
  put16(24, ~sum & 0xFFFFU);
  put16(34, 4000);
  put16(36, port);
  put16(38, size - 34);
  return frame;
}

}  // namespace bench
