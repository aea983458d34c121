/// Bytes from TCP connections to a receive queue.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <vector>

#include "engines/socket/socket_events.h"
#include "io/rx_queue.h"

namespace daqiri::sockets {

class TcpEndpoint;
struct TcpConnection;

/// Reads the connections of one queue, straight into packet buffers: each full buffer, and what the
/// last one of a read has, is a packet.
///
/// Nothing is dropped: a connection for whose data there is no buffer, burst or room in the ring is
/// not read, so that its window closes; the poller comes back every half millisecond. Connections
/// take turns. One that is readable is read again and again without asking epoll, until it is
/// empty.
class TcpReader {
 public:
  TcpReader(RxQueue& queue, TcpEndpoint& endpoint);
  TcpReader(const TcpReader&) = delete;
  TcpReader& operator=(const TcpReader&) = delete;
  ~TcpReader() { close(); }

  [[nodiscard]] RxQueue& queue() const noexcept { return queue_; }
  /// Readable when `receive` has work.
  [[nodiscard]] int fd() const noexcept { return events_.fd(); }
  /// Thread of TcpEndpoint: read the connection from now on, until it sets `ended`. Returns
  /// errno, 0: done.
  int add(TcpConnection& connection) noexcept;

  /// Poller. Packets seen.
  std::uint32_t receive() noexcept;
  /// Give unused buffers back; after the poller has ended.
  void close() noexcept;

 private:
  static constexpr std::uint32_t MAX_PACKETS = 64;

  enum class Outcome : std::uint8_t { MORE, EMPTY, BLOCKED, ENDED };

  void poll_events() noexcept;
  std::uint32_t read_ready() noexcept;
  std::uint32_t read(TcpConnection& connection, Outcome& outcome) noexcept;
  std::uint32_t deliver(TcpConnection& connection, std::uint64_t bytes) noexcept;
  std::uint32_t discard(TcpConnection& connection, std::uint64_t bytes) noexcept;
  void fill() noexcept;
  void consume(std::uint32_t packets) noexcept;
  void end(TcpConnection& connection, int error) noexcept;
  /// What the kernel holds now is to be discarded, and counted for `reason`.
  void mark_stale(DropReason reason) noexcept;
  void wait_for_room() noexcept;

  RxQueue& queue_;
  TcpEndpoint& endpoint_;
  std::uint32_t segments_;
  SocketEvents events_;
  bool timer_set_{false};
  /// Connections that may have data.
  std::vector<TcpConnection*> ready_;
  std::uint32_t passes_{0};
  bool idle_{false};
  bool blocked_{false};
  /// The latest request to discard, and what it is counted as.
  std::uint64_t discard_request_{0};
  DropReason stale_reason_{DropReason::FLUSHED};

  // Packets [0, filled_) have buffers.
  std::uint32_t limit_;
  std::uint32_t filled_{0};
  /// Packets to ask for: twice as many after a read that filled them all, fewer after a short one.
  std::uint32_t want_;
  std::array<std::array<std::uint32_t, MAX_PACKETS>, MAX_NUM_SEGS> buffers_{};
  std::array<iovec, std::size_t{MAX_PACKETS} * MAX_NUM_SEGS> vectors_{};
};

}  // namespace daqiri::sockets
