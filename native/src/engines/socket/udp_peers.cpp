#include "engines/socket/udp_peers.h"

#include <algorithm>

#include "engines/socket/sockets.h"

namespace daqiri::sockets {

AddressKey UdpPeers::local_towards(const SocketAddress& peer) {
  if (!local_.wildcard()) return local_.key();
  constexpr std::size_t MOST_HOSTS = 4096;
  SocketAddress host = peer;
  host.set_port(0);
  const auto known = local_by_host_.find(host.key());
  if (known != local_by_host_.end()) return known->second;
  SocketAddress local = source_towards(peer);
  local.set_port(local_.port());
  if (local_by_host_.size() >= MOST_HOSTS) local_by_host_.clear();
  return local_by_host_[host.key()] = local.key();
}

UdpPeers::Peer UdpPeers::enter(const AddressKey& address) {
  const std::lock_guard lock(mutex_);
  if (const auto known = by_address_.find(address); known != by_address_.end())
    return peers_.at(known->second);
  const Peer peer{next_connection_id(), address, local_towards(SocketAddress(address)), 0};
  peers_.emplace(peer.connection, peer);
  // Without memory for this, the peer gets another id when it comes again.
  by_address_.emplace(address, peer.connection);
  return peer;
}

void UdpPeers::forget(std::uintptr_t connection) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(connection);
  if (found == peers_.end()) return;
  by_address_.erase(found->second.address);
  peers_.erase(found);
}

void UdpPeers::set_position(std::uintptr_t connection, std::size_t position) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(connection);
  if (found != peers_.end()) found->second.position = position;
}

std::optional<UdpPeers::Peer> UdpPeers::find(std::uintptr_t connection) const {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(connection);
  return found == peers_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<UdpPeers::Peer> UdpPeers::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Peer> all;
  all.reserve(peers_.size());
  for (const auto& [connection, peer] : peers_) all.push_back(peer);
  std::sort(all.begin(), all.end(),
            [](const Peer& a, const Peer& b) { return a.connection < b.connection; });
  return all;
}

SocketAddress UdpPeers::latest() const noexcept {
  std::array<std::uint64_t, 4> latest{};
  for (const auto& receiver : latest_) {
    const auto values = receiver.read();
    if (values[3] > latest[3]) latest = values;
  }
  return SocketAddress(AddressKey{latest[0], latest[1], latest[2]});
}

}  // namespace daqiri::sockets
