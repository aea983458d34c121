/// Connections and channels of a UDP socket's peers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engines/socket/peer_table.h"
#include "engines/socket/udp_socket.h"
#include "io/rx_queue.h"

namespace daqiri::sockets {

/// Gives each peer a connection id, and a channel on every queue where it is heard.
///
/// Allocates and locks when a peer is new, never for a packet of a known one. A client has one
/// peer; a server MAX_PEERS, of which the one heard least recently makes room for the next. What
/// such a peer had sent stays in its queues, without a ring of its own.
class PeerChannels {
 public:
  static constexpr std::uint32_t MAX_PEERS = RxQueue::MAX_CHANNELS - 1;

  /// `queues` may be empty (transmit only); `receivers` threads serve them.
  PeerChannels(const UdpSocket& socket, std::vector<RxQueue*> queues, std::size_t receivers);

  /// The peer, entered if it is new; heard at `ns` (CLOCK_MONOTONIC). Any thread.
  Peer learn(const AddressKey& key, std::uint64_t ns) noexcept;
  /// As above, for the application: the peer has a ring to be read, empty yet. Waits for the poller
  /// where the ring was another's. Throws std::bad_alloc.
  Peer connect(const AddressKey& key);
  /// Where packets of the peer go on the queue at `position`. The main channel when there is no
  /// memory for another, or no room for what a former peer left in it. Poller of the queue.
  Channel& channel(const Peer& peer, std::size_t position) noexcept;
  /// The queues of receiver `receiver` give up the rings of peers that made room. Their poller.
  void settle(std::size_t receiver) noexcept;
  /// Position of the last queue where the peer was heard; 0 until it is.
  [[nodiscard]] std::size_t heard_at(const Peer& peer) const noexcept;

  [[nodiscard]] const std::shared_ptr<PeerTable>& table() const noexcept { return table_; }
  [[nodiscard]] const std::vector<RxQueue*>& queues() const noexcept { return queues_; }

 private:
  [[nodiscard]] std::atomic<Channel*>& entry(std::uint32_t number, std::size_t position) noexcept {
    return channels_[number * queues_.size() + position];
  }
  Channel* add_channel(const Peer& peer, std::size_t position);
  void settle_channel(std::uint32_t number, std::size_t position) noexcept;

  const UdpSocket& socket_;
  std::vector<RxQueue*> queues_;
  /// Whether each queue has a receiver of its own; else there is one for all.
  bool spread_;
  std::shared_ptr<PeerTable> table_;
  /// By peer's number and queue; null until such a peer is heard there.
  std::vector<std::atomic<Channel*>> channels_;
  std::mutex adding_;
};

}  // namespace daqiri::sockets
