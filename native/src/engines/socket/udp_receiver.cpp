#include "engines/socket/udp_queues.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <string>

#include "net/headers.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

/// A datagram is counted just before it is queued, possibly on another core: an arrived datagram
/// that cannot be read counts as lost only after this time.
constexpr std::uint64_t QUEUEING_NS = 20'000;

/// Number of receivers whose slots take buffers from a region of the queue.
std::size_t sharers_of(const Port& port, const std::vector<std::size_t>& sockets,
                       std::size_t position) {
  const auto regions_of = [&](std::size_t i) -> const std::vector<std::string>& {
    return port.rx[i]->config().common_.mrs_;
  };
  std::size_t sharers = 0;
  for (std::size_t number = 0; number < port.rx.size(); ++number) {
    const auto first = std::ranges::find(sockets, number);
    if (first == sockets.end()) break;
    const auto& theirs = regions_of(static_cast<std::size_t>(first - sockets.begin()));
    sharers += std::ranges::find_first_of(theirs, regions_of(position)) != theirs.end() ? 1U : 0U;
  }
  return sharers;
}

}  // namespace

UdpReceiver::UdpReceiver(const Port& port, UdpSocket& socket, UdpPeers& peers,
                         const std::vector<std::size_t>& sockets, std::size_t number)
    : socket_(socket),
      peers_(peers),
      queues_(port.rx),
      number_(number),
      first_(static_cast<std::size_t>(std::ranges::find(sockets, number) - sockets.begin())),
      steering_(port.steering),
      tally_(port.steering.add_tally()),
      slots_(first_queue(), !socket.client(), sharers_of(port, sockets, first_),
             std::ranges::any_of(sockets, [&](std::size_t other) { return other != number; })) {
  if (socket.client()) enter(socket.remote().key());
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    hand_overs_.push_back(sockets[i] == number ? nullptr
                                               : std::make_unique<UdpHandOver>(*queues_[i], i));
  }
}

void UdpReceiver::take_from(const UdpReceiver& other) {
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    if (hand_overs_[i] == nullptr && other.hand_overs_[i] != nullptr)
      handed_.push_back(other.hand_overs_[i].get());
  }
}

// --- peers

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
  if (socket_.client()) return senders_.empty() ? nullptr : &senders_.back();
  // If nothing of a peer's datagrams is stored, the peer is not added. Data without a buffer may be
  // for another queue, and the peer tells which.
  return sender_at(slots_.sender(slot), slots_.has_data());
}

UdpReceiver::Sender* UdpReceiver::sender_at(const AddressKey& address, bool stored) noexcept {
  if (!senders_.empty() && senders_.back().peer.address == address) return &senders_.back();
  const auto found = by_address_.find(address);
  if (found == by_address_.end()) return stored ? enter(address) : nullptr;
  if (stored) senders_.splice(senders_.end(), senders_, found->second);
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

// --- datagrams

UdpReceiver::Way UdpReceiver::way_of(std::uint32_t slot, const UdpMessage& message,
                                     std::uint32_t packet, const Sender* sender) const noexcept {
  const steering::Program& program = steering_.program();
  if (program.empty()) return {{}, first_, nullptr};
  const SocketAddress peer(sender != nullptr ? sender->peer.address : slots_.sender(slot));
  const SocketAddress local =
      sender != nullptr ? SocketAddress(sender->peer.local) : socket_.local();
  const std::uint32_t ipv4_len = message.length(packet) + IPV4_SIZE + UDP_SIZE;
  steering::PacketView view{
      key_of(peer, local, static_cast<std::uint16_t>(std::min(ipv4_len, 0xFFFFU)))};
  UdpSlots::Head room;
  if (program.reads_payloads()) {
    view.bytes = slots_.head(slot, message, packet, room);
    view.key.payload_end = static_cast<std::uint32_t>(view.bytes.size());
  }
  const steering::Verdict verdict = program.classify(view);
  std::size_t position = 0;
  while (queues_[position]->id() != verdict.queue) ++position;
  return {verdict, position, hand_overs_[position].get()};
}

void UdpReceiver::drop(const Way& way, const UdpMessage& message, std::uint32_t first,
                       std::uint32_t end, DropReason reason) noexcept {
  const std::uint64_t bytes = message.bytes_of(first, end);
  tally_.count(way.verdict.position, end - first, bytes);
  if (way.hand_over != nullptr) return way.hand_over->lose(reason, end - first, bytes);
  queues_[way.position]->drop(reason, end - first, bytes);
}

void UdpReceiver::deliver(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
                          std::uint32_t end, Sender* sender, std::uint64_t timestamp,
                          const Way& way) noexcept {
  RxQueue& queue = *queues_[way.position];
  const std::uint32_t length = std::min(message.length(first), slots_.capacity());
  RxBatch batch;
  batch.flows.constant = way.verdict.flow;
  batch.times.constant = timestamp;
  while (first < end) {
    const std::uint32_t n = slots_.place(slot, message, first, end, batch);
    if (n == 0) return drop(way, message, first, end, DropReason::NO_PACKET_BUFFER);
    if (message.length(first) > length) queue.count_truncated(n);
    tally_.count(way.verdict.position, n, std::uint64_t{n} * length);
    first += n;
    queue.deliver(source_of(sender, way.position), batch);
  }
}

void UdpReceiver::hand_over(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
                            std::uint32_t end, std::uint64_t timestamp, const Way& way,
                            const std::byte* whole) noexcept {
  if (whole == nullptr) return drop(way, message, first, end, DropReason::NO_PACKET_BUFFER);
  const AddressKey peer = slots_.sender(slot);
  const std::uint32_t kept =
      std::min(message.length(first), queues_[way.position]->max_packet_size());
  tally_.count(way.verdict.position, end - first, std::uint64_t{end - first} * kept);
  for (; first < end; ++first) {
    way.hand_over->put(peer, whole + std::size_t{first} * message.segment, message.length(first),
                       way.verdict.flow, timestamp);
  }
}

void UdpReceiver::accept(std::uint32_t slot, const UdpMessage& message,
                         std::uint64_t now) noexcept {
  // Each socket of the address has such a datagram.
  if (message.to_many && number_ > 0) return;
  Sender* sender = sender_of(slot);
  const std::uint64_t timestamp = message.timestamp != 0 ? message.timestamp : now;
  const std::byte* whole = nullptr;
  const bool isolated = steering_.program().isolated();
  const auto pass = [&](std::uint32_t first, std::uint32_t end, const Way& to) {
    if (isolated && !to.verdict.matched) return drop(to, message, first, end, DropReason::FILTERED);
    if (to.hand_over != nullptr) return hand_over(slot, message, first, end, timestamp, to, whole);
    deliver(slot, message, first, end, sender, timestamp, to);
  };
  if (steering_.program().reads_payloads() && message.count > 1) {
    if (hands_over()) whole = slots_.whole(slot, message);
    // Runs of packets with one way.
    for (std::uint32_t first = 0; first < message.count;) {
      const Way way = way_of(slot, message, first, sender);
      std::uint32_t end = first + 1;
      while (end < message.count && message.length(end) == message.length(first) &&
             way_of(slot, message, end, sender).same(way))
        ++end;
      pass(first, end, way);
      first = end;
    }
    return;
  }
  // A flow may match lengths, and the last datagram of a GRO batch may have a different one.
  const bool split = message.count > 1 && message.last != message.segment;
  const std::uint32_t equal = split ? message.count - 1 : message.count;
  const Way way = way_of(slot, message, 0, sender);
  const Way last = split ? way_of(slot, message, equal, sender) : way;
  if (way.hand_over != nullptr || last.hand_over != nullptr) whole = slots_.whole(slot, message);
  pass(0, equal, way);
  if (split) pass(equal, message.count, last);
}

bool UdpReceiver::hands_over() const noexcept {
  return std::ranges::any_of(hand_overs_, [](const auto& each) { return each != nullptr; });
}

std::uint32_t UdpReceiver::read(std::uint32_t slots) noexcept {
  // An error of an earlier send (ECONNREFUSED from a peer that is down) is reported once, to either
  // thread, then cleared.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int n =
        recvmmsg(socket_.fd(), slots_.messages(), slots, MSG_DONTWAIT | MSG_TRUNC, nullptr);
    if (n > 0) return static_cast<std::uint32_t>(n);
    const bool nothing = n == 0 || errno == EAGAIN || errno == EWOULDBLOCK;
    // A report whose error the sender was told would keep the socket readable.
    socket_.discard_reports();
    if (nothing) return 0;
  }
  return 0;
}

// --- losses

void UdpReceiver::count_kernel_drops() noexcept {
  const std::uint32_t drops = socket_.kernel_drops(kernel_drops_seen_);
  const std::uint32_t more = drops - kernel_drops_seen_;
  // Less than before while the kernel is rejecting a copy.
  if (static_cast<std::int32_t>(more) <= 0) return;
  kernel_drops_seen_ = drops;
  lost_ += more;
  first_queue().drop(DropReason::KERNEL, more);
  drops_unfinished_ = socket_.counts_arrivals();
  socket_.warn_of_uncounted_drops();
  socket_.warn_of_wrong_checksums();
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
  for (UdpHandOver* handed : handed_) handed->discard_rest();
  slots_.close();
  // No datagram may have followed those with wrong checksums.
  count_kernel_drops();
  if (drops_unfinished_) count_lost_batches(socket_.arrived());
  first_queue().end_pass();
}

// --- Passes

std::uint32_t UdpReceiver::receive_messages() noexcept {
  const steering::Steering::Pass pass(steering_);
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
  // After every read that returned datagrams: drops mean that the buffer was full, so that
  // datagrams follow; except those with wrong checksums, which are counted later.
  if (packets > 0) {
    if (!senders_.empty()) peers_.set_latest(number_, senders_.back().peer.address, monotonic_ns());
    count_kernel_drops();
  } else if (drops_unfinished_) {
    finish_kernel_drops();
  }
  for (const auto& hand_over : hand_overs_) {
    if (hand_over == nullptr) continue;
    if (n == 0) hand_over->note_all_read(first_queue().pass_ns());
    hand_over->wake();
  }
  return packets;
}

std::uint32_t UdpReceiver::receive_handed() noexcept {
  std::uint32_t seen = 0;
  RxBatch batch;
  AddressKey peer{};
  for (UdpHandOver* handed : handed_) {
    seen += handed->begin();
    while (handed->next(batch, peer) > 0)
      handed->queue().deliver(source_of(sender_at(peer, true), handed->position()), batch);
  }
  return seen;
}

std::uint32_t UdpReceiver::receive() noexcept {
  const std::uint32_t handed = receive_handed();
  return finished_ ? handed : handed + receive_messages();
}

void UdpReceiver::finish() noexcept {
  finished_ = true;
  for (const auto& hand_over : hand_overs_)
    if (hand_over != nullptr) hand_over->end();
}

}  // namespace daqiri::sockets
