/// The peers of one UDP socket.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engines/socket/socket_address.h"
#include "metrics/counters.h"

namespace daqiri::sockets {

/// Never changed once it is in the table.
struct Peer {
  SocketAddress address;
  AddressKey key{};
  /// The address of this host that the peer talks to.
  SocketAddress local;
  std::uintptr_t connection{0};
};

/// A connection id that no other connection of this process has had.
std::uintptr_t next_connection_id() noexcept;

/// Append-only open-addressing table; all memory is allocated beforehand.
///
/// One thread adds at a time (the caller sees to that); any thread looks up, without locks.
/// Recorders and bursts share ownership, so that addresses are known after the socket is closed.
class PeerTable {
 public:
  static constexpr std::uint32_t NONE = 0xFFFFFFFFU;

  /// `receivers`: threads that call set_last_heard.
  PeerTable(std::uint32_t capacity, std::size_t receivers);

  /// Number of the peer, or NONE.
  [[nodiscard]] std::uint32_t find(const AddressKey& key) const noexcept;
  [[nodiscard]] std::uint32_t find(std::uintptr_t connection) const noexcept;
  [[nodiscard]] const Peer& operator[](std::uint32_t number) const noexcept {
    return peers_[number];
  }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return size_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint32_t capacity() const noexcept {
    return static_cast<std::uint32_t>(peers_.size());
  }

  /// The next peer gets number `size()`. False when the table is full.
  bool add(const SocketAddress& address, const SocketAddress& local,
           std::uintptr_t connection) noexcept;

  /// Receiving thread `receiver`: who sent the latest datagram, in the table or not, and when.
  void set_last_heard(std::size_t receiver, const AddressKey& key, std::uint64_t ns) noexcept {
    last_heard_[receiver].publish({key[0], key[1], key[2], ns});
  }
  /// No address before the first datagram.
  [[nodiscard]] SocketAddress last_heard() const noexcept;

 private:
  /// Number + 1 of a peer; 0: free. At most half of them are taken.
  using Slots = std::unique_ptr<std::atomic<std::uint32_t>[]>;
  static void insert(Slots& slots, std::uint64_t mask, std::uint64_t hash,
                     std::uint32_t number) noexcept;

  std::vector<Peer> peers_;
  std::uint64_t mask_;
  Slots by_address_;
  Slots by_connection_;
  std::atomic<std::uint32_t> size_{0};
  std::vector<CounterGroup<4>> last_heard_;
};

}  // namespace daqiri::sockets
