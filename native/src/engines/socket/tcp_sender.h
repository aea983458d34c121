/// Packets of a transmit queue to TCP connections.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>

#include "engines/socket/socket_events.h"
#include "io/io_engine.h"

namespace daqiri::sockets {

class TcpEndpoint;
struct TcpConnection;

/// Gathers up to 256 packets per system call, straight from their buffers. One per transmit queue.
///
/// Never waits: what a full socket does not take is left with the worker, which watches `fd`. A
/// packet of which a part has left is resumed exactly there; nobody else's comes between.
class TcpSender {
 public:
  static constexpr std::uint32_t RUN = 256;

  /// `max_payload`: 0, or the configured limit in bytes.
  TcpSender(TcpEndpoint& endpoint, std::uint32_t max_payload);
  TcpSender(const TcpSender&) = delete;
  TcpSender& operator=(const TcpSender&) = delete;

  /// As PortIo::transmit. Connection 0 and the endpoint's own mean a client's connection, or the
  /// peer that a server received from last. Packets to a server's peer that is gone, beyond the
  /// limit, or cut by the loss of their connection fail; those of a client without connection wait
  /// for the next one.
  TransmitResult send(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  /// Readable when a socket that was full may take more, or a connection has come.
  [[nodiscard]] int fd() const noexcept { return events_.fd(); }
  /// Any thread: look again.
  void wake() noexcept { events_.wake(); }

 private:
  TcpConnection* connection_of(const Burst& burst) noexcept;
  std::uint32_t gather(const Burst& burst, std::uint32_t first, std::uint32_t count,
                       std::size_t& vectors) noexcept;
  /// Of `ready` packets, so many bytes have left.
  TransmitResult count_sent(const Burst& burst, std::uint32_t first, std::uint32_t ready,
                            std::uint64_t bytes) noexcept;
  /// Wait until the socket takes more.
  void wait_for(const TcpConnection& connection) noexcept;

  TcpEndpoint& endpoint_;
  std::uint32_t max_length_;
  SocketEvents events_;
  /// Something is waited for, whose event must be taken.
  bool waiting_{false};
  TcpConnection* latest_{nullptr};

  /// The connection that has a part of the worker's next packet, how much, and of which socket.
  TcpConnection* cut_{nullptr};
  std::uint32_t cut_at_{0};
  std::uint32_t cut_generation_{0};

  std::array<iovec, 1024> vectors_{};
};

}  // namespace daqiri::sockets
