#include "engines/socket/peer_channels.h"

#include <exception>
#include <utility>

#include "daqiri/error.h"

namespace daqiri::sockets {

PeerChannels::PeerChannels(const UdpSocket& socket, std::vector<RxQueue*> queues,
                           std::size_t receivers)
    : socket_(socket),
      queues_(std::move(queues)),
      table_(std::make_shared<PeerTable>(socket.client() ? 1 : MAX_PEERS, receivers)),
      channels_(std::size_t{table_->capacity()} * queues_.size()) {
  if (socket.client() && learn(socket.remote().key()) == PeerTable::NONE) {
    throw Error(Status::INTERNAL_ERROR, "no channel for udp://" + socket.remote().text());
  }
}

std::uint32_t PeerChannels::learn(const AddressKey& key) noexcept {
  std::uint32_t number = table_->find(key);
  if (number != PeerTable::NONE || table_->size() == table_->capacity()) return number;
  try {
    const SocketAddress address(key);
    SocketAddress local = socket_.local();
    if (local.wildcard()) {
      local = source_towards(address);
      local.set_port(socket_.local().port());
    }
    const std::lock_guard lock(adding_);
    number = table_->find(key);
    if (number != PeerTable::NONE || table_->size() == table_->capacity()) return number;
    const std::uintptr_t connection = next_connection_id();
    number = table_->size();
    if (!queues_.empty()) {
      Channel* channel = queues_.front()->add_channel(connection);
      if (channel == nullptr) return PeerTable::NONE;
      channels_[number * queues_.size()].store(channel, std::memory_order_release);
    }
    table_->add(address, local, connection);
    return number;
  } catch (const std::exception&) {
    // Out of memory: the peer shares the main channel.
    return PeerTable::NONE;
  }
}

Channel& PeerChannels::channel(std::uint32_t peer, std::size_t position) noexcept {
  RxQueue& queue = *queues_[position];
  if (peer == PeerTable::NONE) return queue.main_channel();
  std::atomic<Channel*>& entry = channels_[peer * queues_.size() + position];
  Channel* channel = entry.load(std::memory_order_acquire);
  if (channel != nullptr) return *channel;
  try {
    const std::lock_guard lock(adding_);
    channel = queue.add_channel((*table_)[peer].connection);
  } catch (const std::exception&) {
    channel = nullptr;
  }
  if (channel == nullptr) return queue.main_channel();
  entry.store(channel, std::memory_order_release);
  return *channel;
}

std::size_t PeerChannels::heard_at(std::uint32_t peer) const noexcept {
  std::size_t position = queues_.size();
  while (position > 0) {
    if (channels_[peer * queues_.size() + --position].load(std::memory_order_acquire) != nullptr)
      return position;
  }
  return 0;
}

}  // namespace daqiri::sockets
