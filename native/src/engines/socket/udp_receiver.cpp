#include "engines/socket/udp_receiver.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>

#include "engines/socket/sockets.h"
#include "net/headers.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

/// A datagram is counted just before it is queued, on another core perhaps: what has arrived and
/// cannot be read is lost only after this long.
constexpr std::uint64_t QUEUEING_NS = 20'000;

}  // namespace

UdpReceiver::UdpReceiver(const Port& port, UdpSocket& socket, UdpPeers& peers, std::size_t number)
    : socket_(socket),
      peers_(peers),
      queues_(port.rx),
      number_(number),
      steering_(port.steering),
      slots_(first_queue(), !socket.client()) {
  if (socket.client()) enter(socket.remote().key());
}

// --- Peers

UdpReceiver::Sender* UdpReceiver::enter(const AddressKey& address) noexcept {
  try {
    if (senders_.size() >= MAX_PEERS) evict_earliest();
    senders_.push_back({peers_.enter(address), std::vector<RxSource*>(queues_.size())});
    by_address_[address] = std::prev(senders_.end());
    return &senders_.back();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void UdpReceiver::evict_earliest() noexcept {
  const Sender& sender = senders_.front();
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    if (sender.sources[i] != nullptr) queues_[i]->retire(*sender.sources[i]);
  }
  peers_.forget(sender.peer.connection);
  by_address_.erase(sender.peer.address);
  senders_.pop_front();
}

UdpReceiver::Sender* UdpReceiver::sender_of(std::uint32_t slot) noexcept {
  Sender* latest = senders_.empty() ? nullptr : &senders_.back();
  if (socket_.client()) return latest;
  const AddressKey address = slots_.sender(slot);
  if (latest != nullptr && latest->peer.address == address) return latest;
  const auto found = by_address_.find(address);
  // A peer that nothing is kept of is not entered.
  if (found == by_address_.end()) return slots_.blank() ? nullptr : enter(address);
  if (!slots_.blank()) senders_.splice(senders_.end(), senders_, found->second);
  return &*found->second;
}

RxSource& UdpReceiver::source_of(Sender* sender, std::size_t position) noexcept {
  RxQueue& queue = *queues_[position];
  if (sender == nullptr) return queue.main_source();
  RxSource*& source = sender->sources[position];
  if (source != nullptr) return *source;
  const UdpPeers::Peer& peer = sender->peer;
  try {
    source = &queue.add_source(peer.connection, {peer.address, peer.local});
  } catch (const std::bad_alloc&) {
    return queue.main_source();
  }
  if (position != 0) peers_.set_position(peer.connection, position);
  return *source;
}

// --- Datagrams

void UdpReceiver::deliver(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
                          std::uint32_t end, Sender* sender, std::uint64_t timestamp) noexcept {
  const steering::Program& program = steering_.program();
  steering::Verdict verdict;
  std::size_t position = number_;
  if (!program.empty()) {
    const SocketAddress peer(sender != nullptr ? sender->peer.address : slots_.sender(slot));
    const SocketAddress local =
        sender != nullptr ? SocketAddress(sender->peer.local) : socket_.local();
    const std::uint32_t length = message.length(first) + IPV4_SIZE + UDP_SIZE;
    verdict = program.classify(
        {key_of(peer, local, static_cast<std::uint16_t>(std::min(length, 0xFFFFU)))});
    position = 0;
    while (queues_[position]->id() != verdict.queue) ++position;
  }
  RxQueue& queue = *queues_[position];
  const auto drop = [&](DropReason reason) {
    queue.drop(reason, end - first, message.bytes_of(first, end));
  };
  if (program.isolated() && !verdict.matched) return drop(DropReason::FILTERED);
  RxBatch batch;
  batch.flows.constant = verdict.flow;
  batch.times.constant = timestamp;
  while (first < end) {
    const std::uint32_t n = slots_.place(slot, message, first, end, batch);
    if (n == 0) return drop(DropReason::NO_PACKET_BUFFER);
    if (message.length(first) > slots_.capacity()) queue.count_truncated(n);
    first += n;
    queue.deliver(source_of(sender, position), batch);
  }
}

void UdpReceiver::accept(std::uint32_t slot, const UdpMessage& message,
                         std::uint64_t now) noexcept {
  Sender* sender = sender_of(slot);
  const std::uint64_t timestamp = message.timestamp != 0 ? message.timestamp : now;
  // A flow may name lengths, and the last datagram of a GRO batch have its own.
  const bool split = message.count > 1 && message.last != message.segment;
  const std::uint32_t equal = split ? message.count - 1 : message.count;
  deliver(slot, message, 0, equal, sender, timestamp);
  if (split) deliver(slot, message, equal, message.count, sender, timestamp);
}

std::uint32_t UdpReceiver::read(std::uint32_t slots) noexcept {
  // An error that an earlier send met (ECONNREFUSED from a dead peer) is reported once, then
  // cleared.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int n =
        recvmmsg(socket_.fd(), slots_.messages(), slots, MSG_DONTWAIT | MSG_TRUNC, nullptr);
    if (n > 0) return static_cast<std::uint32_t>(n);
    if (n == 0 || errno == EAGAIN || errno == EWOULDBLOCK) return 0;
  }
  return 0;
}

// --- Losses

void UdpReceiver::count_kernel_drops() noexcept {
  const std::uint32_t drops = socket_.kernel_drops();
  const std::uint32_t more = drops - kernel_drops_seen_;
  if (more == 0) return;
  kernel_drops_seen_ = drops;
  lost_ += more;
  first_queue().drop(DropReason::KERNEL, more);
  drops_unfinished_ = socket_.counts_arrivals();
  socket_.warn_of_uncounted_drops();
}

void UdpReceiver::count_lost_batches(std::uint64_t arrived) noexcept {
  drops_unfinished_ = false;
  if (arrived <= read_ + lost_) return;
  first_queue().drop(DropReason::KERNEL, arrived - read_ - lost_);
  lost_ = arrived - read_;
}

void UdpReceiver::finish_kernel_drops() noexcept {
  const std::uint64_t arrived = socket_.arrived();
  const std::uint64_t now = monotonic_ns();
  if (arrived != arrived_) {
    arrived_ = arrived;
    arrived_since_ = now;
  } else if (now - arrived_since_ > QUEUEING_NS) {
    count_lost_batches(arrived);
  }
}

void UdpReceiver::close() noexcept {
  slots_.close();
  if (!drops_unfinished_) return;
  count_lost_batches(socket_.arrived());
  first_queue().end_pass();
}

std::uint32_t UdpReceiver::receive() noexcept {
  steering_.refresh();
  const std::uint32_t n = read(slots_.fill());
  slots_.received(n);
  const std::uint64_t now = n > 0 ? realtime_ns() : 0;
  std::uint32_t packets = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    const UdpMessage message = slots_.open(i);
    accept(i, message, now);
    packets += message.count;
  }
  read_ += packets;
  // Once after every datagram that was read: a drop means that the buffer was full, so that one
  // follows.
  if (packets > 0) {
    if (!senders_.empty()) peers_.set_latest(number_, senders_.back().peer.address, monotonic_ns());
    count_kernel_drops();
  } else if (drops_unfinished_) {
    finish_kernel_drops();
  }
  return packets;
}

}  // namespace daqiri::sockets
