/// Connections of UDP sockets.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engines/socket/sockets.h"
#include "metrics/counters.h"

namespace daqiri::sockets {

/// The peers of an interface's UDP sockets, shared by all threads.
///
/// Takes a lock for new peers, for bursts to another peer than before, and for the application;
/// never for a packet of a known peer. Recorders share ownership, so that addresses are known after
/// the socket is closed.
class UdpPeers {
 public:
  struct Hash {
    std::size_t operator()(const AddressKey& key) const noexcept { return hash(key); }
  };
  struct Peer {
    std::uintptr_t connection{0};
    AddressKey address{};
    /// The address of this host that the peer uses.
    AddressKey local{};
    /// Position of the queue that received from it last; 0 before.
    std::size_t position{0};
    /// How often it was entered and not forgotten.
    std::size_t users{0};
  };

  /// `local`: the address of the sockets; `receivers`: number of threads that call set_latest.
  UdpPeers(const SocketAddress& local, std::size_t receivers) : local_(local), latest_(receivers) {}

  /// Return the peer with this address; adds a new one. One that is handed over has two receivers,
  /// and each enters it. Throws std::bad_alloc.
  Peer enter(const AddressKey& address) {
    const std::lock_guard lock(mutex_);
    if (const auto known = by_address_.find(address); known != by_address_.end()) {
      Peer& peer = peers_.at(known->second);
      ++peer.users;
      return peer;
    }
    const Peer peer{next_connection_id(), address, local_towards(SocketAddress(address)), 0, 1};
    peers_.emplace(peer.connection, peer);
    // If memory is exhausted here, the peer gets another id with its next datagram.
    by_address_.emplace(address, peer.connection);
    return peer;
  }
  /// Call once for each `enter`. After the last one, the peer and its id are removed; if it sends
  /// again, it gets another id.
  void forget(std::uintptr_t connection) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(connection);
    if (found == peers_.end() || --found->second.users > 0) return;
    by_address_.erase(found->second.address);
    peers_.erase(found);
  }
  void set_position(std::uintptr_t connection, std::size_t position) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(connection);
    if (found != peers_.end()) found->second.position = position;
  }

  [[nodiscard]] std::optional<Peer> find(std::uintptr_t connection) const {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(connection);
    return found == peers_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Returns the oldest first.
  [[nodiscard]] std::vector<Peer> all() const {
    std::vector<Peer> all;
    const std::lock_guard lock(mutex_);
    all.reserve(peers_.size());
    for (const auto& [connection, peer] : peers_) all.push_back(peer);
    std::ranges::sort(all, {}, &Peer::connection);
    return all;
  }

  /// Called by receiving thread `receiver`: sender and time of the latest datagram (CLOCK_MONOTONIC
  /// ns).
  void set_latest(std::size_t receiver, const AddressKey& address, std::uint64_t ns) noexcept {
    latest_[receiver].publish({address[0], address[1], address[2], ns});
  }
  /// No address before the first datagram.
  [[nodiscard]] SocketAddress latest() const noexcept {
    std::array<std::uint64_t, 4> latest{};
    for (const auto& receiver : latest_) {
      const auto values = receiver.read();
      if (values[3] > latest[3]) latest = values;
    }
    return SocketAddress(AddressKey{latest[0], latest[1], latest[2]});
  }

 private:
  /// Returns the source address for a peer. Called with the lock held.
  AddressKey local_towards(const SocketAddress& peer) {
    if (!local_.wildcard()) return local_.key();
    constexpr std::size_t MOST_HOSTS = 4096;
    SocketAddress host = peer;
    host.set_port(0);
    const auto known = local_by_host_.find(host.key());
    if (known != local_by_host_.end()) return known->second;
    SocketAddress local = source_towards(peer);
    // Not stored, because the query may succeed later: there may be no file descriptor now.
    if (!local.given()) return local.key();
    local.set_port(local_.port());
    if (local_by_host_.size() >= MOST_HOSTS) local_by_host_.clear();
    return local_by_host_[host.key()] = local.key();
  }

  SocketAddress local_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uintptr_t, Peer> peers_;
  std::unordered_map<AddressKey, std::uintptr_t, Hash> by_address_;
  /// For a socket bound to a wildcard: source address by host, as returned by the kernel.
  std::unordered_map<AddressKey, AddressKey, Hash> local_by_host_;
  std::vector<CounterGroup<4>> latest_;
};

}  // namespace daqiri::sockets
