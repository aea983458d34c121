#include "engines/socket/udp_receiver.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include "daqiri/error.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

constexpr std::uint32_t IPV4_UDP_HEADERS = 28;
constexpr std::uint64_t ARRIVAL_PAUSE_NS = 20'000;

}  // namespace

UdpReceiver::UdpReceiver(const Port& port, UdpSocket& socket, PeerChannels& peers,
                         std::size_t number)
    : socket_(socket),
      peers_(peers),
      number_(number),
      classifier_(port.classifier.get()),
      steered_(!port.config.rx_.flows_.empty()),
      isolated_(port.config.rx_.flow_isolation_),
      slots_(first_queue(), !socket.client()) {
  if (socket.client()) last_.peer = (*peers_.table())[0];
  const auto& queues = peers_.queues();
  for (std::size_t i = 0; i < queues.size(); ++i) {
    const std::uint16_t id = queues[i]->id();
    if (position_.size() <= id) position_.resize(std::size_t{id} + 1);
    position_[id] = static_cast<std::uint16_t>(i);
  }
}

// --- Datagrams

const UdpReceiver::Sender& UdpReceiver::sender_of(std::uint32_t slot,
                                                  std::uint64_t heard) noexcept {
  if (socket_.client()) return last_;
  const AddressKey key = slots_.sender(slot);
  const std::uint64_t evictions = peers_.table()->evictions();
  if (key == last_.key && last_.peer.known() && evictions == evictions_) {
    peers_.table()->heard(last_.peer.number, heard);
    return last_;
  }
  last_ = {key, peers_.learn(key, heard)};
  evictions_ = evictions;
  return last_;
}

const UdpReceiver::Sender& UdpReceiver::unlearnt_sender_of(std::uint32_t slot) noexcept {
  if (socket_.client()) return last_;
  const AddressKey key = slots_.sender(slot);
  if (key != last_.key) last_ = {key, peers_.table()->find(key)};
  return last_;
}

steering::Verdict UdpReceiver::classify(const Sender& sender, std::uint32_t length) const noexcept {
  if (!steered_) return {false, first_queue().id(), 0};
  steering::PacketKey key;
  const bool known = sender.peer.known();
  const SocketAddress peer(known ? sender.peer.address : sender.key);
  const SocketAddress local = known ? SocketAddress(sender.peer.local) : socket_.local();
  key.udp_src = peer.port();
  key.udp_dst = local.port();
  if (peer.ipv6()) {
    key.ipv6_udp = true;
  } else {
    key.ipv4_udp = true;
    key.ipv4_len =
        static_cast<std::uint16_t>(std::min<std::uint32_t>(length + IPV4_UDP_HEADERS, 0xFFFF));
    key.ipv4_src = peer.ipv4();
    key.ipv4_dst = local.ipv4();
  }
  return classifier_->classify(key);
}

void UdpReceiver::deliver(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
                          std::uint32_t end, const Sender& sender,
                          std::uint64_t timestamp) noexcept {
  const bool ends = end == message.count;
  const std::uint32_t length = first + 1 == end && ends ? message.last : message.segment;
  const steering::Verdict verdict = classify(sender, length);
  const std::size_t position = position_[verdict.queue];
  RxQueue& queue = *peers_.queues()[position];
  const auto drop = [&](DropReason reason) {
    const std::uint64_t bytes =
        std::uint64_t{end - first} * message.segment - (ends ? message.segment - message.last : 0);
    queue.drop(reason, end - first, bytes);
  };
  if (isolated_ && !verdict.matched) return drop(DropReason::FILTERED);
  ReceivedRun run;
  run.flow = verdict.flow;
  run.timestamp = timestamp;
  while (first < end) {
    const std::uint32_t n = slots_.place(slot, message, first, end, run);
    if (n == 0) return drop(DropReason::NO_PACKET_BUFFER);
    first += n;
    if (message.segment > slots_.capacity()) {
      const bool last_fits = first == message.count && message.last <= slots_.capacity();
      queue.count_truncated(n - (last_fits ? 1 : 0));
    }
    queue.deliver_run(peers_.channel(sender.peer, position), run);
  }
}

void UdpReceiver::accept(std::uint32_t slot, const UdpMessage& message, std::uint64_t now,
                         std::uint64_t heard) noexcept {
  const Sender& sender = sender_of(slot, heard);
  const std::uint64_t timestamp = message.timestamp != 0 ? message.timestamp : now;
  // A flow may name lengths, and the last datagram of a row have its own.
  const bool split = steered_ && message.count > 1 && message.last != message.segment;
  const std::uint32_t equal = split ? message.count - 1 : message.count;
  deliver(slot, message, 0, equal, sender, timestamp);
  if (split) deliver(slot, message, equal, message.count, sender, timestamp);
}

std::uint32_t UdpReceiver::read(mmsghdr* messages, std::uint32_t slots) noexcept {
  // An error that an earlier send met (ECONNREFUSED from a dead peer) is reported once, then
  // cleared.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int n = recvmmsg(socket_.fd(), messages, slots, MSG_DONTWAIT | MSG_TRUNC, nullptr);
    if (n > 0) return static_cast<std::uint32_t>(n);
    if (n == 0 || errno == EAGAIN || errno == EWOULDBLOCK) return 0;
  }
  return 0;
}

std::uint32_t UdpReceiver::discard() noexcept {
  const std::uint32_t n = read(slots_.blank_messages(), UdpSlots::MAX_SLOTS);
  std::uint32_t packets = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    const UdpMessage message = slots_.open_blank(i);
    const Sender& sender = unlearnt_sender_of(i);
    const auto drop = [&](std::uint32_t count, std::uint32_t length) {
      const steering::Verdict verdict = classify(sender, length);
      const bool filtered = isolated_ && !verdict.matched;
      peers_.queues()[position_[verdict.queue]]->drop(
          filtered ? DropReason::FILTERED : DropReason::NO_PACKET_BUFFER, count,
          std::uint64_t{count} * length);
    };
    if (message.count > 1) drop(message.count - 1, message.segment);
    drop(1, message.last);
    packets += message.count;
  }
  return packets;
}

void UdpReceiver::count_kernel_drops() noexcept {
  const std::uint32_t drops = socket_.kernel_drops();
  const std::uint32_t more = drops - kernel_drops_seen_;
  if (more == 0) return;
  kernel_drops_seen_ = drops;
  lost_ += more;
  first_queue().drop(DropReason::KERNEL, more);
  unsettled_ = socket_.counts_arrivals();
  socket_.warn_of_uncounted_drops();
}

void UdpReceiver::count_lost_rows(std::uint64_t arrived) noexcept {
  unsettled_ = false;
  if (arrived <= read_ + lost_) return;
  first_queue().drop(DropReason::KERNEL, arrived - read_ - lost_);
  lost_ = arrived - read_;
}

void UdpReceiver::settle_kernel_drops() noexcept {
  // A datagram is counted just before it is queued, on another core perhaps: what has arrived and
  // cannot be read is lost only after a while.
  const std::uint64_t arrived = socket_.arrived();
  const std::uint64_t now = monotonic_ns();
  if (arrived != arrived_) {
    arrived_ = arrived;
    arrived_since_ = now;
  } else if (now - arrived_since_ > ARRIVAL_PAUSE_NS) {
    count_lost_rows(arrived);
  }
}

void UdpReceiver::close() noexcept {
  slots_.close();
  if (!unsettled_) return;
  count_lost_rows(socket_.arrived());
  first_queue().end_pass();
}

void UdpReceiver::settle_evicted() noexcept {
  const std::uint64_t evictions = peers_.table()->evictions();
  if (evictions == evictions_settled_) return;
  evictions_settled_ = evictions;
  peers_.settle(number_);
}

std::uint32_t UdpReceiver::receive() noexcept {
  settle_evicted();
  const std::uint32_t slots = slots_.fill();
  std::uint32_t packets = 0;
  if (slots == 0) {
    packets = discard();
  } else {
    const std::uint32_t n = read(slots_.messages(), slots);
    slots_.received(n);
    const std::uint64_t now = n > 0 ? realtime_ns() : 0;
    const std::uint64_t heard = n > 0 ? monotonic_ns() : 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      const UdpMessage message = slots_.open(i);
      // In the order of arrival, also within a call.
      accept(i, message, now, heard + i);
      packets += message.count;
    }
  }
  read_ += packets;
  // Once after every datagram that was read: a drop means that the buffer was full, so that one
  // follows.
  if (packets > 0) {
    if (!socket_.client()) peers_.table()->set_last_heard(number_, last_.key, monotonic_ns());
    count_kernel_drops();
  } else if (unsettled_) {
    settle_kernel_drops();
  }
  return packets;
}

}  // namespace daqiri::sockets
