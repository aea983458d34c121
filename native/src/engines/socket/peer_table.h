/// The peers of one UDP socket.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "metrics/counters.h"
#include "net/socket_address.h"

namespace daqiri::sockets {

/// A peer as it was when it was looked up; its number may be another's since.
struct Peer {
  static constexpr std::uint32_t NONE = 0xFFFFFFFFU;

  /// Place in the table.
  std::uint32_t number{NONE};
  std::uintptr_t connection{0};
  AddressKey address{};
  /// The address of this host that the peer talks to.
  AddressKey local{};

  [[nodiscard]] bool known() const noexcept { return number != NONE; }
};

/// A connection id that no other connection of this process has had.
std::uintptr_t next_connection_id() noexcept;

/// Open-addressing table of a fixed number of peers, whose memory is allocated beforehand.
///
/// When it is full, the peer heard least recently makes room: its connection id is retired, and if
/// it comes back it gets another. Any thread enters and looks up; finding a peer takes no lock,
/// only missing it does, because an entry may be on the move. Recorders share ownership, so that
/// addresses are known after the socket is closed.
class PeerTable {
 public:
  /// `receivers`: threads that call set_last_heard.
  PeerTable(std::uint32_t capacity, std::size_t receivers);

  /// Not known() when it is not in the table.
  [[nodiscard]] Peer find(const AddressKey& address) const noexcept;
  [[nodiscard]] Peer find(std::uintptr_t connection) const noexcept;
  /// The peer that has this number now; not known() while that changes.
  [[nodiscard]] Peer operator[](std::uint32_t number) const noexcept;
  [[nodiscard]] std::vector<Peer> all() const;
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }

  /// The peer, entered if it is new. `ns`: CLOCK_MONOTONIC.
  Peer enter(const AddressKey& address, const AddressKey& local, std::uint64_t ns) noexcept;
  /// How many peers have made room: a number that was looked up holds while this stays.
  [[nodiscard]] std::uint64_t evictions() const noexcept {
    return evictions_.load(std::memory_order_acquire);
  }

  /// A datagram of the peer with this number came at `ns`.
  void heard(std::uint32_t number, std::uint64_t ns) noexcept {
    entries_[number].heard.store(ns, std::memory_order_relaxed);
  }
  /// Receiving thread `receiver`: who sent the latest datagram, in the table or not, and when.
  void set_last_heard(std::size_t receiver, const AddressKey& key, std::uint64_t ns) noexcept {
    last_heard_[receiver].publish({key[0], key[1], key[2], ns});
  }
  /// No address before the first datagram.
  [[nodiscard]] SocketAddress last_heard() const noexcept;

 private:
  /// Written under the lock, with connection 0 meanwhile; ids are unique, so that what is read
  /// between two reads of the same one belongs together.
  struct Entry {
    std::atomic<std::uintptr_t> connection{0};
    std::array<std::atomic<std::uint64_t>, 6> ends{};
    std::atomic<std::uint64_t> heard{0};
  };
  /// Number + 1 of a peer; 0: free. At most half of them are taken.
  using Slots = std::unique_ptr<std::atomic<std::uint32_t>[]>;

  [[nodiscard]] Peer probe(const AddressKey& address) const noexcept;
  [[nodiscard]] Peer probe(std::uintptr_t connection) const noexcept;
  void insert(Slots& slots, std::uint64_t hash, std::uint32_t number) noexcept;
  template <typename HashOf>
  void erase(Slots& slots, std::uint32_t number, const HashOf& hash_of) noexcept;
  [[nodiscard]] std::uint32_t least_recently_heard() const noexcept;
  void evict(std::uint32_t number) noexcept;

  std::uint32_t capacity_;
  std::uint64_t mask_;
  std::unique_ptr<Entry[]> entries_;
  Slots by_address_;
  Slots by_connection_;
  mutable std::mutex changing_;
  std::uint32_t size_{0};
  std::atomic<std::uint64_t> evictions_{0};
  std::vector<CounterGroup<4>> last_heard_;
};

}  // namespace daqiri::sockets
