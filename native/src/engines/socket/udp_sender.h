/// Packets of transmit queues to a UDP socket.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "engines/socket/sockets.h"
#include "engines/socket/udp_launch.h"
#include "engines/socket/udp_peers.h"
#include "engines/socket/udp_socket.h"
#include "io/io_engine.h"

namespace daqiri::sockets {

/// Sends up to 512 packets per system call, straight from their buffers. One per transmit queue,
/// because queues may have different workers.
///
/// Neighbours of equal length (the last may be shorter) go to the kernel as one message, which it
/// or the device cuts into datagrams (UDP_SEGMENT). Where that is refused, datagrams go singly, and
/// packets of that length are not offered again. With launch times in the kernel, a message has
/// one.
class UdpSender {
 public:
  static constexpr std::uint32_t BATCH = 512;

  /// `max_payload`: 0, or the configured limit in bytes. `connection`: a client's, or the id that
  /// means a server's socket itself, as 0 does. `launch`: null where the worker keeps launch times.
  UdpSender(const UdpSocket& socket, const UdpPeers& peers, std::uint32_t max_payload,
            std::uintptr_t connection, UdpLaunch* launch);

  /// As PortIo::transmit. A client sends to its peer, a server to the peer of the burst's
  /// connection, or (connection 0) to the one received from last. Packets without a peer or
  /// beyond the limit fail. What a full socket does not take, or the kernel before its launch time,
  /// is left with the worker, which watches `fd`.
  TransmitResult send(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  /// Readable when packets that were not taken may be.
  [[nodiscard]] int fd() const noexcept { return events_.fd(); }

 private:
  static constexpr std::uint32_t MESSAGES = 64;
  /// What every kernel with UDP_SEGMENT takes in one message.
  static constexpr std::uint32_t MAX_SEGMENTS = 64;
  struct alignas(cmsghdr) Controls {
    std::byte stamp[CMSG_SPACE(sizeof(std::uint64_t))];
    std::byte segment[CMSG_SPACE(sizeof(std::uint16_t))];
  };

  bool find_destination(const Burst& burst) noexcept;
  void gather(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  /// Packets that go as one message, which has this stamp.
  [[nodiscard]] std::uint32_t run_length(const Burst& burst, std::uint32_t first,
                                         std::uint32_t count, std::uint64_t stamp) const noexcept;
  void set_controls(std::uint32_t message, std::uint64_t stamp) noexcept;
  bool stop_segmenting(int error) noexcept;
  /// The kernel has taken so many messages.
  TransmitResult count_sent(std::size_t messages) noexcept;

  const UdpSocket& socket_;
  const UdpPeers& peers_;
  /// The kernel's limit on a message, and the configured one on a datagram.
  std::uint32_t max_message_;
  std::uint32_t max_length_;
  /// Packets below this length may be sent as segments.
  std::uint32_t segment_limit_;
  std::uintptr_t connection_;
  UdpLaunch* launch_;
  SocketAddress destination_;
  /// Of the latest burst to a peer, whose address it was.
  std::uintptr_t latest_{0};
  SocketAddress latest_address_;
  SocketEvents events_;
  bool waiting_{false};
  /// The first `gathered_` messages, and the packets, the segment length and the stamp of each.
  std::uint32_t gathered_{0};
  std::array<mmsghdr, MESSAGES> messages_{};
  std::array<std::uint32_t, MESSAGES> packets_{};
  std::array<std::uint32_t, MESSAGES> lengths_{};
  std::array<std::uint64_t, MESSAGES> stamps_{};
  std::array<Controls, MESSAGES> controls_{};
  std::array<iovec, std::size_t{BATCH} * MAX_NUM_SEGS> vectors_{};
};

}  // namespace daqiri::sockets
