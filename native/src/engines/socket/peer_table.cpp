#include "engines/socket/peer_table.h"

#include <bit>

namespace daqiri::sockets {

std::uintptr_t next_connection_id() noexcept {
  static std::atomic<std::uintptr_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

PeerTable::PeerTable(std::uint32_t capacity, std::size_t receivers)
    : peers_(capacity),
      mask_(std::bit_ceil(std::uint64_t{capacity} * 2) - 1),
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

std::uint32_t PeerTable::find(const AddressKey& key) const noexcept {
  for (std::uint64_t i = hash(key) & mask_;; i = (i + 1) & mask_) {
    const std::uint32_t slot = by_address_[i].load(std::memory_order_acquire);
    if (slot == 0) return NONE;
    if (peers_[slot - 1].key == key) return slot - 1;
  }
}

std::uint32_t PeerTable::find(std::uintptr_t connection) const noexcept {
  for (std::uint64_t i = connection & mask_;; i = (i + 1) & mask_) {
    const std::uint32_t slot = by_connection_[i].load(std::memory_order_acquire);
    if (slot == 0) return NONE;
    if (peers_[slot - 1].connection == connection) return slot - 1;
  }
}

void PeerTable::insert(Slots& slots, std::uint64_t mask, std::uint64_t hash,
                       std::uint32_t number) noexcept {
  std::uint64_t i = hash & mask;
  while (slots[i].load(std::memory_order_relaxed) != 0) i = (i + 1) & mask;
  slots[i].store(number + 1, std::memory_order_release);
}

bool PeerTable::add(const SocketAddress& address, const SocketAddress& local,
                    std::uintptr_t connection) noexcept {
  const std::uint32_t number = size_.load(std::memory_order_relaxed);
  if (number == peers_.size()) return false;
  peers_[number] = Peer{address, address.key(), local, connection};
  insert(by_connection_, mask_, connection, number);
  insert(by_address_, mask_, hash(peers_[number].key), number);
  size_.store(number + 1, std::memory_order_release);
  return true;
}

}  // namespace daqiri::sockets
