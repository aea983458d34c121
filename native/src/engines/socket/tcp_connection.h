/// One connection of a TCP interface, with its reader and its sender.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engines/socket/sockets.h"
#include "io/io_engine.h"
#include "system/socket_events.h"

namespace daqiri::sockets {

class TcpEndpoint;
class TcpReader;
class TcpSender;

/// One peer. A client's connection keeps its id for all sockets during its lifetime.
///
/// TcpEndpoint owns the socket. A poller reads from it between `TcpReader::add` and `ended`;
/// workers send while they hold `sending`; it is closed, while `sending` is held, after `ended` is
/// set.
struct TcpConnection {
  /// 0: never used.
  std::atomic<std::uintptr_t> id{0};

  // --- TcpEndpoint, with its mutex held; any thread may read the phase.
  enum class Phase : std::uint8_t { CLOSED, CONNECTING, CONNECTED, PEER_FINISHED };
  std::atomic<Phase> phase{Phase::CLOSED};
  SocketAddress peer;
  SocketAddress local;
  /// Source address; no address: any.
  SocketAddress source;
  /// A socket that is connecting.
  File pending;
  /// errno of the latest loss or failed attempt.
  int error{0};
  std::uint64_t attempted_ns{0};
  /// Since when neither side has sent, in phase PEER_FINISHED.
  std::uint64_t idle_since_ns{0};
  std::uint64_t bytes_seen{0};
  /// When it was closed; the place of the oldest is reused first.
  std::uint64_t closed_ns{0};

  // --- Workers, with `sending` held.
  std::mutex sending;
  /// Not open: closed or not connected.
  File socket;
  /// Number of the socket: a packet that was cut by a loss is not continued on the next socket.
  std::uint32_t generation{0};
  /// The sender of a packet that has left only in part; other senders must wait.
  const TcpSender* unfinished{nullptr};
  /// Whether sending has failed permanently.
  std::atomic<bool> send_failed{false};
  /// Whether a flush has reset it: nothing more can be read either.
  std::atomic<bool> reset{false};
  std::atomic<std::uint64_t> bytes_sent{0};

  // --- Poller, from TcpReader::add until it sets `ended`.
  int read_fd{-1};
  TcpReader* reader{nullptr};
  /// Kept until the place is reused; null: the connection is not read.
  RxSource* rx_source{nullptr};
  FlowId flow{0};
  /// See Verdict::position.
  std::uint16_t flow_position{steering::NO_FLOW};
  bool listed{false};
  /// Bytes in the kernel that arrived before a flush.
  std::uint64_t stale{0};
  /// errno that ended reading; 0: the peer has finished sending.
  int read_error{0};
  /// Whether reading has ended.
  std::atomic<bool> ended{true};
};

/// Reads the connections of one queue directly into packet buffers: each full buffer is a packet,
/// and so is the rest in the last buffer of a read.
///
/// Nothing is dropped: if there is no buffer, burst or ring space for a connection, it is not read,
/// so that its window closes; the poller retries every half millisecond. Connections take turns. A
/// readable connection is read repeatedly, without calls of epoll, until it is empty.
class TcpReader {
 public:
  TcpReader(RxQueue& queue, TcpEndpoint& endpoint, steering::FlowTally& tally);
  ~TcpReader() { close(); }

  [[nodiscard]] RxQueue& queue() const noexcept { return queue_; }
  /// Tells when `receive` has work.
  [[nodiscard]] Readiness ready() const noexcept { return Readiness(events_); }
  /// Called by the thread of TcpEndpoint: read the connection from now on, until `ended` is set.
  /// Returns errno, 0: done.
  int add(TcpConnection& connection) noexcept;

  /// Poller. Returns the number of packets seen.
  std::uint32_t receive() noexcept;
  /// Free unused buffers; call after the poller has ended.
  void close() noexcept;

 private:
  static constexpr std::uint32_t MAX_PACKETS = 64;

  enum class Outcome : std::uint8_t { MORE, EMPTY_OR_ENDED, BLOCKED };

  void poll_events() noexcept;
  std::uint32_t read_ready() noexcept;
  /// Read once. Adds the packets to `seen`.
  Outcome read(TcpConnection& connection, std::uint32_t& seen) noexcept;
  std::uint32_t deliver(TcpConnection& connection, std::uint64_t bytes) noexcept;
  std::uint32_t discard(TcpConnection& connection, std::uint64_t bytes) noexcept;
  void consume(std::uint32_t packets) noexcept;
  void end(TcpConnection& connection, int error) noexcept;
  /// Discard what the kernel holds now, and count it with `reason`.
  void mark_stale(DropReason reason) noexcept;
  void wait_for_room() noexcept;

  RxQueue& queue_;
  TcpEndpoint& endpoint_;
  steering::FlowTally& tally_;
  std::uint32_t segments_;
  SocketEvents events_;
  bool timer_set_{false};
  /// Connections that may have data.
  std::vector<TcpConnection*> ready_;
  std::uint32_t passes_{0};
  bool idle_{false};
  bool blocked_{false};
  /// The latest request to discard, and the reason that is counted.
  std::uint64_t discard_request_{0};
  DropReason stale_reason_{DropReason::FLUSHED};

  // Packets [0, filled_) have buffers.
  std::uint32_t limit_;
  std::uint32_t filled_{0};
  /// Packets per read: doubled after a read that filled them all, reduced after a short one.
  std::uint32_t want_;
  std::array<std::array<std::uint32_t, MAX_PACKETS>, MAX_NUM_SEGS> buffers_{};
  std::array<iovec, std::size_t{MAX_PACKETS} * MAX_NUM_SEGS> vectors_{};
};

/// Gathers up to 256 packets per system call, directly from their buffers. One per transmit queue.
///
/// Never waits: packets that do not fit into a full socket stay with the worker, which watches
/// `fd`. A packet that has left in part is continued exactly there; other senders wait.
class TcpSender {
 public:
  static constexpr std::uint32_t RUN = 256;

  /// `max_payload`: 0, or the configured limit in bytes.
  TcpSender(TcpEndpoint& endpoint, std::uint32_t max_payload);
  TcpSender(const TcpSender&) = delete;
  TcpSender& operator=(const TcpSender&) = delete;

  /// See PortIo::transmit. Connection 0 and the endpoint's own mean a client's connection, or a
  /// server's latest peer. Packets fail if a server's peer is gone, if they exceed the limit, or if
  /// the loss of their connection has cut them. Packets of a client without connection wait for the
  /// next one.
  TransmitResult send(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept;
  /// Tells when a full socket may accept more, or a connection was established.
  [[nodiscard]] Readiness ready() const noexcept { return Readiness(events_); }
  /// See PortIo::cut.
  [[nodiscard]] bool cut() const noexcept { return cut_ != nullptr; }
  /// See PortIo::settle: resets connections whose peer has not accepted the written data.
  bool settle(bool last) noexcept;
  /// Any thread: check again.
  void wake() noexcept { events_.wake(); }

 private:
  TcpConnection* connection_of(const Burst& burst) noexcept;
  std::uint32_t gather(const Burst& burst, std::uint32_t first, std::uint32_t count,
                       std::size_t& vectors) noexcept;
  /// Count the packets of which `bytes` bytes have left.
  TransmitResult count_sent(const Burst& burst, std::uint32_t first, std::uint32_t ready,
                            std::uint64_t bytes) noexcept;
  /// Wait until the socket accepts more.
  void wait_for(const TcpConnection& connection) noexcept;

  TcpEndpoint& endpoint_;
  std::uint32_t max_length_;
  SocketEvents events_;
  /// Whether an event is expected, which must be taken.
  bool waiting_{false};
  TcpConnection* latest_{nullptr};

  /// The connection that has a part of the worker's next packet; the length of the part; the number
  /// of the socket.
  TcpConnection* cut_{nullptr};
  std::uint32_t cut_at_{0};
  std::uint32_t cut_generation_{0};

  /// Position of this queue in each connection: `bytes_sent` after its last packet.
  struct Written {
    std::uint32_t generation{0};
    std::uint64_t until{0};
  };
  std::vector<Written> written_;

  std::array<iovec, 1024> vectors_{};
};

}  // namespace daqiri::sockets
