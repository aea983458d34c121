/// The bare loop of a UDP receiver, which counts packets in a ring of memory and looks at none.
#pragma once

#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "arguments.h"
#include "peers/sockets.h"

namespace bench {

constexpr std::size_t MAX_CALL = 64;

struct alignas(64) Counted {
  std::atomic<std::uint64_t> packets{0};
  std::atomic<std::uint64_t> bytes{0};
  /// Time when the latest packet was counted, in ns.
  std::atomic<std::uint64_t> latest{0};
};

/// The size of the packets that the kernel merged; 0 for a single packet.
inline std::uint32_t segment_size(msghdr& header) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_GRO) continue;
    int size = 0;
    std::memcpy(&size, CMSG_DATA(c), sizeof size);
    return static_cast<std::uint32_t>(size);
  }
  return 0;
}

/// Receives into slots of a ring, up to `call` in one call.
[[noreturn]] inline void count_packets(int fd, std::size_t slot, std::size_t call,
                                       std::size_t ring_bytes, Counted& counted) {
  struct alignas(cmsghdr) Control {
    std::byte bytes[CMSG_SPACE(sizeof(int))];
  };
  std::vector<std::uint8_t> ring(std::max(ring_bytes / slot, call) * slot, 1);
  std::array<mmsghdr, MAX_CALL> messages{};
  std::array<iovec, MAX_CALL> vectors{};
  std::array<Control, MAX_CALL> controls{};
  std::uint64_t at = 0, count = 0, size = 0;
  while (true) {
    for (std::size_t i = 0; i < call; ++i) {
      if (at + slot > ring.size()) at = 0;
      vectors[i] = {&ring[at], slot};
      at += slot;
      msghdr& header = messages[i].msg_hdr;
      header.msg_iov = &vectors[i];
      header.msg_iovlen = 1;
      header.msg_control = &controls[i];
      header.msg_controllen = sizeof(Control);
    }
    const int n =
        recvmmsg(fd, messages.data(), static_cast<unsigned>(call), MSG_WAITFORONE, nullptr);
    if (n < 0) {
      if (errno == EINTR) continue;
      fail("recvmmsg");
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const std::uint32_t segment = segment_size(messages[i].msg_hdr);
      count += segment == 0 ? 1 : (messages[i].msg_len + segment - 1) / segment;
      size += messages[i].msg_len;
    }
    counted.packets.store(count, std::memory_order_relaxed);
    counted.bytes.store(size, std::memory_order_relaxed);
    counted.latest.store(now_ns(), std::memory_order_relaxed);
  }
}

}  // namespace bench
