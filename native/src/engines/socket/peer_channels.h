/// Connections and channels of a UDP socket's peers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engines/socket/peer_table.h"
#include "engines/socket/udp_socket.h"
#include "session/rx_queue.h"

namespace daqiri::sockets {

/// Gives each peer a connection id, and a channel on every queue where it is heard.
///
/// Allocates and locks when a peer is new, never for a packet of a known one. A client has one
/// peer; a server up to MAX_PEERS, of which none is ever forgotten.
class PeerChannels {
 public:
  static constexpr std::uint32_t MAX_PEERS = RxQueue::MAX_CHANNELS - 1;

  /// `queues` may be empty (transmit only); `receivers` threads serve them. Throws Error when a
  /// client's peer cannot be entered.
  PeerChannels(const UdpSocket& socket, std::vector<RxQueue*> queues, std::size_t receivers);

  /// The peer's number in the table, entering it if it is new; NONE when there is no room. Any
  /// thread.
  std::uint32_t learn(const AddressKey& key) noexcept;
  /// Where packets of the peer go on the queue at `position`; NONE: the main channel. Poller only.
  Channel& channel(std::uint32_t peer, std::size_t position) noexcept;
  /// Position of the last queue where the peer was heard; 0 until it is.
  [[nodiscard]] std::size_t heard_at(std::uint32_t peer) const noexcept;

  [[nodiscard]] const std::shared_ptr<PeerTable>& table() const noexcept { return table_; }
  [[nodiscard]] const std::vector<RxQueue*>& queues() const noexcept { return queues_; }

 private:
  const UdpSocket& socket_;
  std::vector<RxQueue*> queues_;
  std::shared_ptr<PeerTable> table_;
  /// By peer and queue; null until the peer is heard there.
  std::vector<std::atomic<Channel*>> channels_;
  std::mutex adding_;
};

}  // namespace daqiri::sockets
