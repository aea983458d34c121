#include "engines/socket/peer_channels.h"

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "net/interfaces.h"
#include "timing/clock.h"

namespace daqiri::sockets {

PeerChannels::PeerChannels(const UdpSocket& socket, std::vector<RxQueue*> queues,
                           std::size_t receivers)
    : socket_(socket),
      queues_(std::move(queues)),
      spread_(receivers > 1),
      table_(std::make_shared<PeerTable>(socket.client() ? 1 : MAX_PEERS, receivers)),
      channels_(std::size_t{table_->capacity()} * queues_.size()) {
  if (socket.client()) connect(socket.remote().key());
}

Peer PeerChannels::learn(const AddressKey& key, std::uint64_t ns) noexcept {
  Peer peer = table_->find(key);
  if (peer.known()) {
    table_->heard(peer.number, ns);
    return peer;
  }
  SocketAddress local = socket_.local();
  if (local.wildcard()) {
    local = source_towards(SocketAddress(key));
    local.set_port(socket_.local().port());
  }
  const std::uint64_t evictions = table_->evictions();
  peer = table_->enter(key, local.key(), ns);
  if (table_->evictions() == evictions) return peer;
  for (const RxQueue* queue : queues_) {
    if (queue->poller_doorbell != nullptr) queue->poller_doorbell->ring();
  }
  return peer;
}

Peer PeerChannels::connect(const AddressKey& key) {
  const Peer peer = learn(key, monotonic_ns());
  if (queues_.empty()) return peer;
  if (entry(peer.number, 0).load(std::memory_order_acquire) == nullptr) add_channel(peer, 0);
  constexpr int LIMIT = 10'000;
  for (int i = 0; i < LIMIT && !queues_.front()->closed(); ++i) {
    if (queues_.front()->has_connection(peer.connection) || !table_->find(peer.connection).known())
      break;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return peer;
}

Channel* PeerChannels::add_channel(const Peer& peer, std::size_t position) {
  const std::lock_guard lock(adding_);
  Channel* channel = entry(peer.number, position).load(std::memory_order_relaxed);
  if (channel != nullptr) return channel;
  channel = queues_[position]->add_channel(peer.connection, {peer.address, peer.local});
  entry(peer.number, position).store(channel, std::memory_order_release);
  return channel;
}

Channel& PeerChannels::channel(const Peer& peer, std::size_t position) noexcept {
  RxQueue& queue = *queues_[position];
  Channel* channel = entry(peer.number, position).load(std::memory_order_acquire);
  try {
    if (channel == nullptr) channel = add_channel(peer, position);
  } catch (const std::exception&) {
    channel = nullptr;
  }
  if (channel == nullptr) return queue.main_channel();
  if (channel->connection_id.load(std::memory_order_relaxed) == peer.connection) return *channel;
  return queue.reassign(*channel, peer.connection, {peer.address, peer.local})
             ? *channel
             : queue.main_channel();
}

void PeerChannels::settle_channel(std::uint32_t number, std::size_t position) noexcept {
  Channel* channel = entry(number, position).load(std::memory_order_acquire);
  if (channel == nullptr) return;
  const std::uintptr_t had = channel->connection_id.load(std::memory_order_relaxed);
  const Peer peer = (*table_)[number];
  if (had == 0 || had == peer.connection) return;
  // The first queue is where the application looks for a peer that was not heard yet.
  if (position == 0 && peer.known()) {
    queues_[position]->reassign(*channel, peer.connection, {peer.address, peer.local});
  } else {
    queues_[position]->reassign(*channel, 0, {});
  }
}

void PeerChannels::settle(std::size_t receiver) noexcept {
  const std::size_t first = spread_ ? receiver : 0;
  const std::size_t end = spread_ ? receiver + 1 : queues_.size();
  for (std::uint32_t number = 0; number < table_->capacity(); ++number) {
    for (std::size_t position = first; position < end; ++position) settle_channel(number, position);
  }
}

std::size_t PeerChannels::heard_at(const Peer& peer) const noexcept {
  std::size_t position = queues_.size();
  while (position > 0) {
    const Channel* channel =
        channels_[peer.number * queues_.size() + --position].load(std::memory_order_acquire);
    if (channel != nullptr &&
        channel->connection_id.load(std::memory_order_acquire) == peer.connection)
      return position;
  }
  return 0;
}

}  // namespace daqiri::sockets
