/// One connection of a TCP interface.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "io/rx_queue.h"
#include "net/socket_address.h"
#include "system/file.h"

namespace daqiri::sockets {

class TcpReader;
class TcpSender;

/// One peer. A client's connection keeps its id over all the sockets that it has in its life.
///
/// TcpConnections owns the socket. A poller reads from it between `TcpReader::add` and `ended`;
/// workers send under `sending`; it is closed under `sending` once it has ended.
struct TcpConnection {
  /// 0: never used.
  std::atomic<std::uintptr_t> id{0};

  // --- TcpConnections, under its mutex.
  enum class Phase : std::uint8_t { CLOSED, CONNECTING, CONNECTED, PEER_FINISHED };
  Phase phase{Phase::CLOSED};
  SocketAddress peer;
  SocketAddress local;
  /// To connect from; no address: any.
  SocketAddress source;
  /// A socket that is connecting.
  File pending;
  /// errno of the latest loss or failed attempt.
  int error{0};
  std::uint64_t attempted_ns{0};
  /// Since when neither side has sent, in phase PEER_FINISHED.
  std::uint64_t idle_since_ns{0};
  std::uint64_t bytes_seen{0};
  /// When it was closed; the oldest is forgotten first.
  std::uint64_t closed_ns{0};

  // --- Workers, under `sending`.
  std::mutex sending;
  /// Not open: closed or not connected.
  File socket;
  /// Number of the socket: a packet that was cut by a loss is not resumed on the next one.
  std::uint32_t generation{0};
  /// Whose packet has left in part only; nobody else's may come between.
  const TcpSender* unfinished{nullptr};
  /// A send has failed for good.
  std::atomic<bool> send_failed{false};
  std::atomic<std::uint64_t> bytes_sent{0};

  // --- Poller, from TcpReader::add until it sets `ended`.
  int read_fd{-1};
  TcpReader* reader{nullptr};
  /// Kept until the place is another's; null: none is read.
  RxSource* rx_source{nullptr};
  FlowId flow{0};
  bool listed{false};
  /// Bytes in the kernel that arrived before a flush.
  std::uint64_t stale{0};
  /// errno that ended reading; 0: the peer has sent all it wants to.
  int read_error{0};
  /// Nothing more will be read.
  std::atomic<bool> ended{true};
};

}  // namespace daqiri::sockets
