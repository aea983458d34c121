#include "engines/socket/udp_receiver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "daqiri/error.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

constexpr std::uint32_t IPV4_UDP_HEADERS = 28;

/// The queues of a socket get their buffers before their datagrams are known.
void require_sharing(const InterfaceConfig& interface) {
  const auto& queues = interface.rx_.queues_;
  const RxQueueConfig& first = queues.front();
  for (const RxQueueConfig& queue : queues) {
    const auto refuse = [&](const std::string& what) {
      throw Error(Status::INVALID_PARAMETER,
                  "interface '" + interface.name_ + "': rx queues '" + first.name_ + "' and '" +
                      queue.name_ + "' read one socket and must have the same " + what);
    };
    if (queue.cpu_core_ != first.cpu_core_)
      refuse("cpu_core; found '" + first.cpu_core_ + "' and '" + queue.cpu_core_ + "'");
    if (queue.mrs_ != first.mrs_) refuse("memory_regions, in the same order");
    if (queue.split_boundary_ != first.split_boundary_) refuse("split_boundary");
  }
}

}  // namespace

UdpReceiver::UdpReceiver(const Port& port, const UdpSocket& socket, PeerChannels& peers)
    : socket_(socket),
      peers_(peers),
      classifier_(port.classifier.get()),
      steered_(!port.config.rx_.flows_.empty()),
      isolated_(port.config.rx_.flow_isolation_) {
  require_sharing(port.config);
  const auto& queues = peers_.queues();
  for (std::size_t i = 0; i < queues.size(); ++i) {
    const std::uint16_t id = queues[i]->id();
    if (position_.size() <= id) position_.resize(std::size_t{id} + 1);
    position_[id] = static_cast<std::uint16_t>(i);
  }
  const RxQueue& first = first_queue();
  segments_ = static_cast<std::uint32_t>(first.num_segments());
  for (std::uint32_t i = 0; i < BATCH; ++i) {
    msghdr& header = messages_[i].msg_hdr;
    header.msg_name = socket_.client() ? nullptr : names_[i].data();
    header.msg_iov = &vectors_[std::size_t{i} * MAX_NUM_SEGS];
    header.msg_iovlen = segments_;
    header.msg_control = &controls_[i];
    for (std::uint32_t s = 0; s < segments_; ++s)
      header.msg_iov[s].iov_len = first.segment_capacity(static_cast<int>(s));
    reset(i);
  }
}

// --- Slots

void UdpReceiver::reset(std::uint32_t slot) noexcept {
  msghdr& header = messages_[slot].msg_hdr;
  header.msg_namelen = header.msg_name == nullptr ? 0 : SocketAddress::CAPACITY;
  header.msg_controllen = sizeof(Control);
}

void UdpReceiver::bind(std::uint32_t slot, std::uint32_t segment, std::uint32_t buffer) noexcept {
  packets_[slot].buffers[segment] = buffer;
  messages_[slot].msg_hdr.msg_iov[segment].iov_base = region(segment).address(buffer);
}

void UdpReceiver::fill() noexcept {
  while (ready_ < BATCH) vacant_[num_vacant_++] = ready_++;
  if (num_vacant_ == 0) return;
  std::array<std::uint32_t, MAX_NUM_SEGS> counts{};
  std::uint32_t n = num_vacant_;
  for (std::uint32_t s = 0; s < segments_; ++s) {
    counts[s] = region(s).take(taken_[s].data(), n);
    n = counts[s];
  }
  // A packet needs a buffer of every region.
  for (std::uint32_t s = 0; s < segments_; ++s) {
    if (counts[s] > n) region(s).give(&taken_[s][n], counts[s] - n);
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t s = 0; s < segments_; ++s) bind(vacant_[i], s, taken_[s][i]);
  }
  // Slots left without move to the end: the highest vacant one is last, or the last one takes its
  // place.
  while (num_vacant_ > n) {
    const std::uint32_t hole = vacant_[--num_vacant_];
    if (hole == --ready_) continue;
    for (std::uint32_t s = 0; s < segments_; ++s) bind(hole, s, packets_[ready_].buffers[s]);
  }
  num_vacant_ = 0;
}

void UdpReceiver::close() noexcept {
  std::uint32_t delivered = 0;
  for (std::uint32_t i = 0; i < ready_; ++i) {
    if (delivered < num_vacant_ && vacant_[delivered] == i) {
      ++delivered;
      continue;
    }
    for (std::uint32_t s = 0; s < segments_; ++s) region(s).give(&packets_[i].buffers[s], 1);
  }
  ready_ = 0;
  num_vacant_ = 0;
}

// --- Datagrams

const UdpReceiver::Sender& UdpReceiver::sender_of(std::uint32_t slot, bool learn_new) noexcept {
  if (socket_.client()) {
    last_.peer = 0;
    return last_;
  }
  const AddressKey key = names_[slot].key();
  if (key == last_.key && (last_.peer != PeerTable::NONE || !learn_new)) return last_;
  last_.key = key;
  last_.peer = learn_new ? peers_.learn(key) : peers_.table()->find(key);
  peers_.table()->set_last_heard(key);
  return last_;
}

steering::Verdict UdpReceiver::classify(const Sender& sender, std::uint32_t length) const noexcept {
  if (!steered_) return {false, first_queue().id(), 0};
  steering::PacketKey key;
  const PeerTable& table = *peers_.table();
  const bool known = sender.peer != PeerTable::NONE;
  const SocketAddress peer = known ? table[sender.peer].address : SocketAddress(sender.key);
  const SocketAddress& local = known ? table[sender.peer].local : socket_.local();
  if (!peer.ipv6()) {
    key.ipv4_udp = true;
    key.udp_src = peer.port();
    key.udp_dst = local.port();
    key.ipv4_len =
        static_cast<std::uint16_t>(std::min<std::uint32_t>(length + IPV4_UDP_HEADERS, 0xFFFF));
    key.ipv4_src = peer.ipv4();
    key.ipv4_dst = local.ipv4();
  }
  return classifier_->classify(key);
}

std::uint64_t UdpReceiver::timestamp_of(std::uint32_t slot) noexcept {
  msghdr& header = messages_[slot].msg_hdr;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec t{};
    std::memcpy(&t, CMSG_DATA(c), sizeof(t));
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(t.tv_nsec);
  }
  return 0;
}

void UdpReceiver::cut(ReceivedPacket& packet, RxQueue& queue, std::uint32_t length) noexcept {
  for (std::uint32_t s = 0; s < segments_; ++s) {
    packet.lengths[s] = std::min(length, queue.segment_capacity(static_cast<int>(s)));
    length -= packet.lengths[s];
  }
  if (length > 0) queue.count_truncated();
}

bool UdpReceiver::accept(std::uint32_t slot, std::uint64_t now) noexcept {
  // With MSG_TRUNC the kernel tells the length on the wire, even of a datagram that it cut.
  const std::uint32_t length = messages_[slot].msg_len;
  const Sender& sender = sender_of(slot, true);
  const steering::Verdict verdict = classify(sender, length);
  const std::size_t position = position_[verdict.queue];
  RxQueue& queue = *peers_.queues()[position];
  if (isolated_ && !verdict.matched) {
    queue.drop(DropReason::FILTERED, 1, length);
    return false;
  }
  ReceivedPacket& packet = packets_[slot];
  cut(packet, queue, length);
  packet.flow = verdict.flow;
  const std::uint64_t stamp = timestamp_of(slot);
  packet.timestamp = stamp != 0 ? stamp : now;
  queue.deliver(peers_.channel(sender.peer, position), packet);
  return true;
}

std::uint32_t UdpReceiver::read(std::uint32_t slots) noexcept {
  // An error that an earlier send met (ECONNREFUSED from a dead peer) is reported once, then
  // cleared.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int n =
        recvmmsg(socket_.fd(), messages_.data(), slots, MSG_DONTWAIT | MSG_TRUNC, nullptr);
    if (n > 0) return static_cast<std::uint32_t>(n);
    if (n == 0 || errno == EAGAIN || errno == EWOULDBLOCK) return 0;
  }
  return 0;
}

std::uint32_t UdpReceiver::discard() noexcept {
  for (mmsghdr& message : messages_) message.msg_hdr.msg_iovlen = 0;
  const std::uint32_t n = read(BATCH);
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t length = messages_[i].msg_len;
    const steering::Verdict verdict = classify(sender_of(i, false), length);
    const bool filtered = isolated_ && !verdict.matched;
    peers_.queues()[position_[verdict.queue]]->drop(
        filtered ? DropReason::FILTERED : DropReason::NO_PACKET_BUFFER, 1, length);
    reset(i);
  }
  for (mmsghdr& message : messages_) message.msg_hdr.msg_iovlen = segments_;
  return n;
}

void UdpReceiver::count_kernel_drops() noexcept {
  const std::uint32_t drops = socket_.kernel_drops();
  if (drops == kernel_drops_seen_) return;
  first_queue().drop(DropReason::KERNEL, drops - kernel_drops_seen_);
  kernel_drops_seen_ = drops;
}

std::uint32_t UdpReceiver::receive() noexcept {
  fill();
  std::uint32_t n = 0;
  if (ready_ == 0) {
    n = discard();
  } else {
    n = read(ready_);
    const std::uint64_t now = n > 0 ? realtime_ns() : 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (accept(i, now)) vacant_[num_vacant_++] = i;
      reset(i);
    }
  }
  // Once after every datagram that was read: a drop means that the buffer was full, so that one
  // follows.
  if (n > 0) count_kernel_drops();
  return n;
}

}  // namespace daqiri::sockets
