#include "engines/socket/udp_queues.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>

#include "net/headers.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

/// A datagram is counted just before it is queued, possibly on another core: an arrived datagram
/// that cannot be read counts as lost only after this time.
constexpr std::uint64_t QUEUEING_NS = 20'000;

/// Packets that are refused for longer than this, and those after them until one is accepted,
/// cannot be sent.
constexpr std::uint64_t MOST_REFUSED_NS = 2'000'000'000;

/// A refused packet is tried again within this time.
constexpr std::uint64_t RETRIED_NS = 500'000'000;

/// An error that is returned as often as this is that of the packet.
constexpr int MOST_ATTEMPTS = 8;

/// Longest payload of an IP packet (without IPv6 jumbograms).
constexpr std::uint32_t MAX_IPV4_PAYLOAD = 65507;
constexpr std::uint32_t MAX_IPV6_PAYLOAD = 65527;

void init_control(std::byte* bytes, int level, int type, std::size_t payload) {
  auto& header = *reinterpret_cast<cmsghdr*>(bytes);
  header.cmsg_level = level;
  header.cmsg_type = type;
  header.cmsg_len = CMSG_LEN(payload);
}

}  // namespace

UdpReceiver::UdpReceiver(const Port& port, UdpSocket& socket, UdpPeers& peers, std::size_t number)
    : socket_(socket),
      peers_(peers),
      queues_(port.rx),
      number_(number),
      steering_(port.steering),
      tally_(port.steering.add_tally()),
      slots_(first_queue(), !socket.client()) {
  if (socket.client()) enter(socket.remote().key());
}

// --- UdpReceiver: peers

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
  // If nothing of a peer's datagrams is stored, the peer is not added.
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

// --- UdpReceiver: datagrams

void UdpReceiver::deliver(std::uint32_t slot, const UdpMessage& message, std::uint32_t first,
                          std::uint32_t end, Sender* sender, std::uint64_t timestamp) noexcept {
  const steering::Program& program = steering_.program();
  steering::Verdict verdict;
  std::size_t position = number_;
  if (!program.empty()) {
    const SocketAddress peer(sender != nullptr ? sender->peer.address : slots_.sender(slot));
    const SocketAddress local =
        sender != nullptr ? SocketAddress(sender->peer.local) : socket_.local();
    const std::uint32_t ipv4_len = message.length(first) + IPV4_SIZE + UDP_SIZE;
    verdict = program.classify(
        {key_of(peer, local, static_cast<std::uint16_t>(std::min(ipv4_len, 0xFFFFU)))});
    position = 0;
    while (queues_[position]->id() != verdict.queue) ++position;
  }
  RxQueue& queue = *queues_[position];
  const auto drop = [&](DropReason reason) {
    const std::uint64_t bytes = message.bytes_of(first, end);
    tally_.count(verdict.position, end - first, bytes);
    queue.drop(reason, end - first, bytes);
  };
  const std::uint32_t length = std::min(message.length(first), slots_.capacity());
  if (program.isolated() && !verdict.matched) return drop(DropReason::FILTERED);
  RxBatch batch;
  batch.flows.constant = verdict.flow;
  batch.times.constant = timestamp;
  while (first < end) {
    const std::uint32_t n = slots_.place(slot, message, first, end, batch);
    if (n == 0) return drop(DropReason::NO_PACKET_BUFFER);
    if (message.length(first) > length) queue.count_truncated(n);
    tally_.count(verdict.position, n, std::uint64_t{n} * length);
    first += n;
    queue.deliver(source_of(sender, position), batch);
  }
}

void UdpReceiver::accept(std::uint32_t slot, const UdpMessage& message,
                         std::uint64_t now) noexcept {
  Sender* sender = sender_of(slot);
  const std::uint64_t timestamp = message.timestamp != 0 ? message.timestamp : now;
  // A flow may match lengths, and the last datagram of a GRO batch may have a different one.
  const bool split = message.count > 1 && message.last != message.segment;
  const std::uint32_t equal = split ? message.count - 1 : message.count;
  deliver(slot, message, 0, equal, sender, timestamp);
  if (split) deliver(slot, message, equal, message.count, sender, timestamp);
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

// --- UdpReceiver: losses

void UdpReceiver::count_kernel_drops() noexcept {
  const std::uint32_t drops = socket_.kernel_drops(kernel_drops_seen_);
  const std::uint32_t more = drops - kernel_drops_seen_;
  if (more == 0) return;
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
  slots_.close();
  // No datagram may have followed those with wrong checksums.
  count_kernel_drops();
  if (drops_unfinished_) count_lost_batches(socket_.arrived());
  first_queue().end_pass();
}

std::uint32_t UdpReceiver::receive() noexcept {
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
  return packets;
}

// --- UdpSender

UdpSender::UdpSender(const UdpSocket& socket, const UdpPeers& peers, std::uint32_t max_payload,
                     std::uintptr_t connection, UdpLaunch* launch, bool segments)
    : socket_(socket),
      peers_(peers),
      max_message_(socket.local().ipv6() ? MAX_IPV6_PAYLOAD : MAX_IPV4_PAYLOAD),
      max_length_(max_payload == 0 ? max_message_ : std::min(max_message_, max_payload)),
      segment_limit_(segments ? max_length_ + 1 : 0),
      connection_(connection),
      launch_(launch),
      events_("udp://" + socket.local().text()) {
  for (std::uint32_t i = 0; i < MESSAGES; ++i) {
    messages_[i].msg_hdr.msg_control =
        launch_ != nullptr ? controls_[i].stamp : controls_[i].segment;
    init_control(controls_[i].stamp, SOL_SOCKET, SCM_TXTIME, sizeof(std::uint64_t));
    init_control(controls_[i].segment, SOL_UDP, UDP_SEGMENT, sizeof(std::uint16_t));
  }
}

bool UdpSender::find_destination(const Burst& burst) noexcept {
  const std::uintptr_t connection = burst.connection_id;
  destination_ = {};
  if (socket_.client()) return connection == 0 || connection == connection_;
  if (connection == 0 || connection == connection_) {
    destination_ = peers_.latest();
    return destination_.given();
  }
  if (connection != latest_) {
    const auto peer = peers_.find(connection);
    if (!peer.has_value()) return false;
    latest_ = connection;
    latest_address_ = SocketAddress(peer->address);
  }
  destination_ = latest_address_;
  return true;
}

std::uint32_t UdpSender::run_length(const Burst& burst, std::uint32_t first, std::uint32_t count,
                                    std::uint64_t stamp) const noexcept {
  const std::uint32_t length = burst.packet_length(first);
  if (length == 0 || length >= segment_limit_) return 1;
  const std::uint32_t limit = std::min({count, MAX_SEGMENTS, max_message_ / length});
  for (std::uint32_t n = 1; n < limit; ++n) {
    if (launch_ != nullptr && !launch_->shares(burst.timestamps[first + n], stamp)) return n;
    const std::uint32_t next = burst.packet_length(first + n);
    if (next == length) continue;
    return next < length && next > 0 ? n + 1 : n;
  }
  return std::max(limit, 1U);
}

void UdpSender::set_controls(std::uint32_t message, std::uint64_t stamp) noexcept {
  Controls& controls = controls_[message];
  std::size_t length = 0;
  if (launch_ != nullptr) {
    std::memcpy(CMSG_DATA(reinterpret_cast<cmsghdr*>(controls.stamp)), &stamp, sizeof(stamp));
    length += sizeof(controls.stamp);
  }
  if (packets_[message] > 1) {
    const auto size = static_cast<std::uint16_t>(lengths_[message]);
    std::memcpy(CMSG_DATA(reinterpret_cast<cmsghdr*>(controls.segment)), &size, sizeof(size));
    length += sizeof(controls.segment);
  }
  messages_[message].msg_hdr.msg_controllen = length;
}

void UdpSender::gather(const Burst& burst, std::uint32_t first, std::uint32_t count) noexcept {
  const auto segments = static_cast<std::uint32_t>(burst.hdr.hdr.num_segs);
  const bool addressed = destination_.given();
  iovec* vector = vectors_.data();
  gathered_ = 0;
  std::uint32_t room = MESSAGES;
  if (launch_ != nullptr) {
    launch_->begin();
    room = std::min(room, launch_->room());
  }
  for (std::uint32_t done = 0; done < count && gathered_ < room;) {
    const std::uint32_t length = burst.packet_length(first + done);
    if (length > max_length_) break;
    const std::uint64_t stamp =
        launch_ == nullptr ? 0 : launch_->stamp(burst.timestamps[first + done]);
    const std::uint32_t n = run_length(burst, first + done, count - done, stamp);
    packets_[gathered_] = n;
    lengths_[gathered_] = length;
    msghdr& header = messages_[gathered_].msg_hdr;
    header.msg_name = addressed ? destination_.data() : nullptr;
    header.msg_namelen = addressed ? destination_.length() : 0;
    header.msg_iov = vector;
    header.msg_iovlen = std::size_t{n} * segments;
    stamps_[gathered_] = stamp;
    set_controls(gathered_, stamp);
    for (std::uint32_t i = first + done; i < first + done + n; ++i) {
      for (std::uint32_t s = 0; s < segments; ++s)
        *vector++ = {burst.pkts[s][i], burst.pkt_lens[s][i]};
    }
    done += n;
    ++gathered_;
  }
}

bool UdpSender::stop_segmenting(int error) noexcept {
  if (packets_[0] == 1) return false;
  if (error == EINVAL || error == EMSGSIZE) {
    // Longer than the path allows without fragmentation, or more segments than this kernel
    // supports.
    segment_limit_ = lengths_[0];
    return true;
  }
  // The device does not compute checksums, or this kernel has no UDP_SEGMENT.
  if (error != EIO && error != EOPNOTSUPP && error != ENOPROTOOPT) return false;
  segment_limit_ = 0;
  return true;
}

TransmitResult UdpSender::send(const Burst& burst, std::uint32_t first,
                               std::uint32_t count) noexcept {
  std::array<epoll_event, 2> events;
  if (waiting_ && events_.take(events) > 0) waiting_ = false;
  if (waiting_) return {};
  count = std::min(count, BATCH);
  if (!find_destination(burst)) return {.failed = count, .error = EDESTADDRREQ};
  gather(burst, first, count);
  if (gathered_ == 0) {
    const TransmitResult result = too_long(burst, first, count, max_length_);
    if (result.failed == 0) {
      waiting_ = true;
      events_.wake(launch_->until_room());
    }
    return result;
  }
  for (int attempt = 1;; ++attempt) {
    const int n = sendmmsg(socket_.fd(), messages_.data(), gathered_, MSG_DONTWAIT);
    if (n > 0) return count_sent(static_cast<std::size_t>(n));
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      waiting_ = events_.watch(socket_.fd(), EPOLLOUT | EPOLLONESHOT) == 0;
      return {};
    }
    if (errno == ENOBUFS) return refused();
    const int error = errno;
    // The error of an earlier packet (ECONNREFUSED: no socket received it), also one of another
    // queue, is returned by the next call, which sends nothing.
    socket_.discard_reports();
    if (attempt < MOST_ATTEMPTS) continue;
    if (!stop_segmenting(error)) return {.failed = packets_[0], .error = error};
    gather(burst, first, count);
  }
}

TransmitResult UdpSender::refused() noexcept {
  // The queueing discipline, or a device without one, is full. Or it never takes such a packet: tbf
  // refuses one that is longer than its burst.
  const std::uint64_t now = monotonic_ns();
  // What was refused long ago may have been flushed.
  if (now - refused_at_ > RETRIED_NS) refused_since_ = now;
  refused_at_ = now;
  if (now - refused_since_ < MOST_REFUSED_NS) return {.device_full = true};
  return {.failed = packets_[0], .error = ENOBUFS};
}

TransmitResult UdpSender::count_sent(std::size_t messages) noexcept {
  refused_at_ = 0;
  // The call was ended by the error of an earlier packet.
  if (messages < gathered_) socket_.discard_reports();
  TransmitResult result;
  for (std::size_t i = 0; i < messages; ++i) {
    if (launch_ != nullptr) {
      launch_->handed(stamps_[i], packets_[i], messages_[i].msg_len);
      result.kept += packets_[i];
    } else {
      result.sent += packets_[i];
      result.bytes += messages_[i].msg_len;
    }
  }
  return result;
}

}  // namespace daqiri::sockets
