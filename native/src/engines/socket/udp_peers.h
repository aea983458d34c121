/// Connections of UDP sockets.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "metrics/counters.h"
#include "net/socket_address.h"

namespace daqiri::sockets {

/// Who sends to an interface's UDP sockets, or is sent to by them: what all threads know of a peer.
///
/// Takes a lock: for new peers, for bursts to another peer than before, for the application; never
/// for a packet of a known peer. Recorders share ownership, so that addresses are known after the
/// socket is closed.
class UdpPeers {
 public:
  struct Hash {
    std::size_t operator()(const AddressKey& key) const noexcept { return hash(key); }
  };
  struct Peer {
    std::uintptr_t connection{0};
    AddressKey address{};
    /// The address of this host that the peer talks to.
    AddressKey local{};
    /// Position of the queue that received from it last; 0 before.
    std::size_t position{0};
  };

  /// `local`: the address of the sockets; `receivers`: threads that call set_latest.
  UdpPeers(const SocketAddress& local, std::size_t receivers) : local_(local), latest_(receivers) {}

  /// The peer with this address, entered if it is new. Throws std::bad_alloc.
  Peer enter(const AddressKey& address);
  /// Its id is retired: should it come back, it gets another.
  void forget(std::uintptr_t connection) noexcept;
  void set_position(std::uintptr_t connection, std::size_t position) noexcept;

  [[nodiscard]] std::optional<Peer> find(std::uintptr_t connection) const;
  /// The oldest first.
  [[nodiscard]] std::vector<Peer> all() const;

  /// Receiving thread `receiver`: who sent the latest datagram, and when (CLOCK_MONOTONIC ns).
  void set_latest(std::size_t receiver, const AddressKey& address, std::uint64_t ns) noexcept {
    latest_[receiver].publish({address[0], address[1], address[2], ns});
  }
  /// No address before the first datagram.
  [[nodiscard]] SocketAddress latest() const noexcept;

 private:
  /// The address from which this host sends to a peer, under the lock.
  AddressKey local_towards(const SocketAddress& peer);

  SocketAddress local_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uintptr_t, Peer> peers_;
  std::unordered_map<AddressKey, std::uintptr_t, Hash> by_address_;
  /// Of a socket at a wildcard, by host: what the kernel said.
  std::unordered_map<AddressKey, AddressKey, Hash> local_by_host_;
  std::vector<CounterGroup<4>> latest_;
};

}  // namespace daqiri::sockets
