#include "engines/socket/peer_table.h"

#include <bit>

namespace daqiri::sockets {

std::uintptr_t next_connection_id() noexcept {
  static std::atomic<std::uintptr_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

PeerTable::PeerTable(std::uint32_t capacity, std::size_t receivers)
    : capacity_(capacity),
      mask_(std::bit_ceil(std::uint64_t{capacity} * 2) - 1),
      entries_(std::make_unique<Entry[]>(capacity)),
      by_address_(std::make_unique<std::atomic<std::uint32_t>[]>(mask_ + 1)),
      by_connection_(std::make_unique<std::atomic<std::uint32_t>[]>(mask_ + 1)),
      last_heard_(receivers) {}

SocketAddress PeerTable::last_heard() const noexcept {
  std::array<std::uint64_t, 4> latest{};
  for (const auto& receiver : last_heard_) {
    const auto heard = receiver.read();
    if (heard[3] > latest[3]) latest = heard;
  }
  return SocketAddress(AddressKey{latest[0], latest[1], latest[2]});
}

// --- Look-up

Peer PeerTable::operator[](std::uint32_t number) const noexcept {
  const Entry& entry = entries_[number];
  Peer peer;
  peer.connection = entry.connection.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < 3; ++i) {
    peer.address[i] = entry.ends[i].load(std::memory_order_acquire);
    peer.local[i] = entry.ends[3 + i].load(std::memory_order_acquire);
  }
  if (peer.connection == 0 || entry.connection.load(std::memory_order_relaxed) != peer.connection)
    return {};
  peer.number = number;
  return peer;
}

Peer PeerTable::probe(const AddressKey& address) const noexcept {
  // Bounded: while entries move, a chain may have no end.
  for (std::uint64_t i = hash(address), n = 0; n <= mask_; ++i, ++n) {
    const std::uint32_t slot = by_address_[i & mask_].load(std::memory_order_acquire);
    if (slot == 0) break;
    const Peer peer = (*this)[slot - 1];
    if (peer.known() && peer.address == address) return peer;
  }
  return {};
}

Peer PeerTable::probe(std::uintptr_t connection) const noexcept {
  for (std::uint64_t i = connection, n = 0; n <= mask_; ++i, ++n) {
    const std::uint32_t slot = by_connection_[i & mask_].load(std::memory_order_acquire);
    if (slot == 0) break;
    const Peer peer = (*this)[slot - 1];
    if (peer.connection == connection) return peer;
  }
  return {};
}

Peer PeerTable::find(const AddressKey& address) const noexcept {
  const Peer peer = probe(address);
  if (peer.known()) return peer;
  const std::lock_guard lock(changing_);
  return probe(address);
}

Peer PeerTable::find(std::uintptr_t connection) const noexcept {
  if (connection == 0) return {};
  const Peer peer = probe(connection);
  if (peer.known()) return peer;
  const std::lock_guard lock(changing_);
  return probe(connection);
}

std::vector<Peer> PeerTable::all() const {
  std::vector<Peer> peers;
  const std::lock_guard lock(changing_);
  peers.reserve(size_);
  for (std::uint32_t i = 0; i < size_; ++i) peers.push_back((*this)[i]);
  return peers;
}

// --- Change, under the lock

void PeerTable::insert(Slots& slots, std::uint64_t hash, std::uint32_t number) noexcept {
  std::uint64_t i = hash & mask_;
  while (slots[i].load(std::memory_order_relaxed) != 0) i = (i + 1) & mask_;
  slots[i].store(number + 1, std::memory_order_release);
}

template <typename HashOf>
void PeerTable::erase(Slots& slots, std::uint32_t number, const HashOf& hash_of) noexcept {
  std::uint64_t hole = hash_of(number) & mask_;
  while (slots[hole].load(std::memory_order_relaxed) != number + 1) hole = (hole + 1) & mask_;
  // What comes later in the chain closes up, unless its own chain begins behind the hole.
  for (std::uint64_t i = (hole + 1) & mask_;; i = (i + 1) & mask_) {
    const std::uint32_t slot = slots[i].load(std::memory_order_relaxed);
    if (slot == 0) break;
    const std::uint64_t begins = hash_of(slot - 1) & mask_;
    if (((i - begins) & mask_) < ((i - hole) & mask_)) continue;
    slots[hole].store(slot, std::memory_order_release);
    hole = i;
  }
  slots[hole].store(0, std::memory_order_release);
}

std::uint32_t PeerTable::least_recently_heard() const noexcept {
  std::uint32_t least = 0;
  std::uint64_t heard = UINT64_MAX;
  for (std::uint32_t i = 0; i < size_; ++i) {
    const std::uint64_t ns = entries_[i].heard.load(std::memory_order_relaxed);
    if (ns >= heard) continue;
    heard = ns;
    least = i;
  }
  return least;
}

void PeerTable::evict(std::uint32_t number) noexcept {
  erase(by_address_, number, [&](std::uint32_t i) { return hash((*this)[i].address); });
  erase(by_connection_, number, [&](std::uint32_t i) { return (*this)[i].connection; });
  evictions_.fetch_add(1, std::memory_order_release);
}

Peer PeerTable::enter(const AddressKey& address, const AddressKey& local,
                      std::uint64_t ns) noexcept {
  const std::lock_guard lock(changing_);
  const Peer known = probe(address);
  if (known.known()) return known;
  const bool full = size_ == capacity_;
  const Peer peer{full ? least_recently_heard() : size_, next_connection_id(), address, local};
  if (full) evict(peer.number);
  Entry& entry = entries_[peer.number];
  entry.connection.store(0, std::memory_order_relaxed);
  for (std::size_t i = 0; i < 3; ++i) {
    entry.ends[i].store(address[i], std::memory_order_release);
    entry.ends[3 + i].store(local[i], std::memory_order_release);
  }
  entry.heard.store(ns, std::memory_order_relaxed);
  entry.connection.store(peer.connection, std::memory_order_release);
  insert(by_connection_, peer.connection, peer.number);
  insert(by_address_, hash(address), peer.number);
  if (!full) ++size_;
  return peer;
}

}  // namespace daqiri::sockets
