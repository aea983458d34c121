/// Packets of transmit queues to a UDP socket.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>

#include "engines/socket/peer_table.h"
#include "engines/socket/udp_socket.h"
#include "session/io_engine.h"

namespace daqiri::sockets {

/// Sends up to 64 packets per system call, straight from their buffers. One per transmit queue,
/// because queues may have different workers.
class UdpSender {
 public:
  static constexpr std::uint32_t BATCH = 64;

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
  bool find_destination(const Burst& burst) noexcept;
  std::uint32_t gather(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;

  const UdpSocket& socket_;
  const PeerTable& peers_;
  std::uint32_t max_length_;
  std::uintptr_t server_connection_;
  SocketAddress destination_;
  std::array<mmsghdr, BATCH> messages_{};
  std::array<iovec, std::size_t{BATCH} * MAX_NUM_SEGS> vectors_{};
};

}  // namespace daqiri::sockets
