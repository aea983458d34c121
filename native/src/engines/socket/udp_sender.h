/// Packets of transmit queues to a UDP socket.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "engines/socket/peer_table.h"
#include "engines/socket/udp_socket.h"
#include "session/io_engine.h"

namespace daqiri::sockets {

/// Sends up to 512 packets per system call, straight from their buffers. One per transmit queue,
/// because queues may have different workers.
///
/// Neighbours of equal length (the last may be shorter) go to the kernel as one message, which it
/// or the device cuts into datagrams (UDP_SEGMENT). Where that is refused, datagrams go singly, and
/// packets of that length are not offered again.
class UdpSender {
 public:
  static constexpr std::uint32_t BATCH = 512;

  /// `max_payload`: 0, or the configured limit in bytes. `server_connection`: an id that means the
  /// socket itself, as 0 does.
  UdpSender(const UdpSocket& socket, const PeerTable& peers, std::uint32_t max_payload,
            std::uintptr_t server_connection);

  /// As IoEngine::transmit. A client sends to its peer, a server to the peer of the burst's
  /// connection, or (connection 0) to the one heard last. Packets without a peer or beyond the
  /// limit fail. A full socket buffer is waited for a few ms; then fewer packets are sent, and the
  /// worker comes again.
  TransmitResult send(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;

 private:
  static constexpr std::uint32_t MESSAGES = 64;
  /// What every kernel with UDP_SEGMENT takes in one message.
  static constexpr std::uint32_t MAX_SEGMENTS = 64;
  struct alignas(cmsghdr) SegmentSize {
    std::byte bytes[CMSG_SPACE(sizeof(std::uint16_t))];
  };

  bool find_destination(const Burst& burst) noexcept;
  void gather(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  [[nodiscard]] std::uint32_t run_length(const Burst& burst, std::uint32_t first,
                                         std::uint32_t count) const noexcept;
  bool stop_segmenting(int error) noexcept;

  const UdpSocket& socket_;
  const PeerTable& peers_;
  /// The kernel's limit on a message, and the configured one on a datagram.
  std::uint32_t max_message_;
  std::uint32_t max_length_;
  /// Shorter packets may be sent as segments.
  std::uint32_t segment_limit_;
  std::uintptr_t server_connection_;
  SocketAddress destination_;
  /// The first `gathered_` messages, and the packets and the segment length of each.
  std::uint32_t gathered_{0};
  std::array<mmsghdr, MESSAGES> messages_{};
  std::array<std::uint32_t, MESSAGES> packets_{};
  std::array<std::uint32_t, MESSAGES> lengths_{};
  std::array<SegmentSize, MESSAGES> controls_{};
  std::array<iovec, std::size_t{BATCH} * MAX_NUM_SEGS> vectors_{};
};

}  // namespace daqiri::sockets
