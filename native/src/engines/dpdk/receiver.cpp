#include "engines/dpdk/receiver.h"

#include <rte_ethdev.h>

#include <algorithm>
#include <cstring>

#include "net/headers.h"
#include "net/transforms.h"
#include "timing/clock.h"

namespace daqiri::dpdk {

namespace {

/// Limit for one pass, so that the poller's other work is not delayed.
constexpr std::uint32_t MOST_PER_PASS = 1024;
/// Limit for a device that never has enough.
constexpr std::uint32_t MOST_DRAINED = 1U << 16U;
/// Packets whose headers are prefetched.
constexpr std::uint32_t AHEAD = 4;

/// Take one buffer from each of the queue's regions. Returns false if a region has none.
bool take_buffers(const RxQueue& queue, std::array<std::uint32_t, MAX_NUM_SEGS>& buffers) noexcept {
  for (int s = 0; s < queue.num_segments(); ++s) {
    if (queue.region(s).take(&buffers[static_cast<std::size_t>(s)], 1) == 1) continue;
    while (--s >= 0) queue.region(s).give(&buffers[static_cast<std::size_t>(s)], 1);
    return false;
  }
  return true;
}

/// Fills the buffers of a packet one after the other.
class Segments {
 public:
  Segments(const RxQueue& queue, const std::array<std::uint32_t, MAX_NUM_SEGS>& buffers) noexcept
      : queue_(queue), buffers_(buffers) {}

  /// There is space for them.
  void put(const std::uint8_t* bytes, std::uint32_t size) noexcept {
    while (size > 0) {
      const std::uint32_t space = queue_.segment_capacity(segment_) - lengths[at()];
      const std::uint32_t part = std::min(size, space);
      std::memcpy(address() + lengths[at()], bytes, part);
      lengths[at()] += part;
      bytes += part;
      size -= part;
      if (part == space && size > 0) ++segment_;
    }
  }

  std::array<std::uint32_t, MAX_NUM_SEGS> lengths{};

 private:
  [[nodiscard]] std::size_t at() const noexcept { return static_cast<std::size_t>(segment_); }
  [[nodiscard]] std::uint8_t* address() const noexcept {
    return static_cast<std::uint8_t*>(queue_.region(segment_).address(buffers_[at()]));
  }

  const RxQueue& queue_;
  const std::array<std::uint32_t, MAX_NUM_SEGS>& buffers_;
  int segment_{0};
};

std::uint8_t* data_of(const rte_mbuf& packet) noexcept {
  return rte_pktmbuf_mtod(&packet, std::uint8_t*);
}

/// Put the tag back that the device has taken out.
void put_back_tag(rte_mbuf& packet) noexcept {
  auto* const frame = reinterpret_cast<std::uint8_t*>(rte_pktmbuf_prepend(&packet, RTE_VLAN_HLEN));
  if (frame == nullptr) return;
  std::memmove(frame, frame + RTE_VLAN_HLEN, ADDRESSES_SIZE);
  store_be16(frame + ADDRESSES_SIZE, RTE_ETHER_TYPE_VLAN);
  store_be16(frame + ADDRESSES_SIZE + 2, packet.vlan_tci);
}

}  // namespace

Receiver::Receiver(const Port& port, std::uint16_t device, std::uint16_t queues,
                   const PacketPool& pool)
    : device_(device),
      queues_(queues),
      pool_(pool),
      steering_(port.steering),
      tally_(port.steering.add_tally()) {
  for (const auto& queue : port.rx) {
    const bool stay = queue->num_segments() == 1 && &queue->region(0) == &pool.region();
    targets_.push_back({.queue = *queue, .stay = stay});
  }
}

Receiver::Target& Receiver::target_for(std::uint16_t queue) noexcept {
  for (Target& target : targets_)
    if (target.queue.id() == queue) return target;
  return targets_.front();
}

std::uint32_t Receiver::receive() noexcept {
  const steering::Steering::Pass pass(steering_);
  std::uint32_t seen = 0;
  for (std::uint16_t queue = 0; queue < queues_; ++queue)
    seen += receive(queue, MOST_PER_PASS / queues_, pass.program());
  return seen;
}

std::uint32_t Receiver::receive(std::uint16_t queue, std::uint32_t most,
                                const steering::Program& program) noexcept {
  std::array<rte_mbuf*, AT_ONCE> packets;
  std::uint32_t seen = 0;
  std::uint32_t count = AT_ONCE;
  while (count == AT_ONCE && seen < most) {
    count = rte_eth_rx_burst(device_, queue, packets.data(), AT_ONCE);
    if (count == 0) break;
    const std::uint64_t time = realtime_ns();
    for (std::uint32_t i = 0; i < std::min(count, AHEAD); ++i)
      __builtin_prefetch(data_of(*packets[i]));
    for (std::uint32_t i = 0; i < count; ++i) {
      if (i + AHEAD < count) __builtin_prefetch(data_of(*packets[i + AHEAD]));
      take(*packets[i], program);
    }
    deliver(time);
    seen += count;
  }
  return seen;
}

void Receiver::take(rte_mbuf& packet, const steering::Program& program) noexcept {
  if ((packet.ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0) put_back_tag(packet);
  const std::uint32_t whole = packet.pkt_len;
  // Of a packet in pieces, headers may be in any of them.
  std::array<std::uint8_t, steering::MOST_KEY_BYTES> room;
  const std::uint32_t captured =
      packet.nb_segs == 1 ? whole : std::min<std::uint32_t>(whole, room.size());
  const auto* const frame =
      static_cast<const std::uint8_t*>(rte_pktmbuf_read(&packet, 0, captured, room.data()));
  const steering::Verdict verdict =
      program.classify(steering::PacketView::of_beginning(frame, captured, whole));
  Target& target = target_for(verdict.queue);
  RxQueue& queue = target.queue;
  const std::uint32_t length = verdict.length_of(whole);
  tally_.count(verdict.position, 1, length);
  if (!verdict.matched && program.isolated()) {
    queue.drop(DropReason::FILTERED, 1, length);
  } else if (length > queue.max_packet_size()) {
    queue.drop(DropReason::TRUNCATED, 1, length);
  } else if (verdict.malformed) {
    queue.drop(DropReason::MALFORMED, 1, length);
  } else if (queue.discards()) {
    queue.drop(queue.discard_reason(), 1, length);
  } else if (target.stay && pool_.holds(packet)) {
    return keep(target, packet, verdict);
  } else if (!copy(target, packet, frame, verdict)) {
    queue.note_shortage();
    queue.drop(DropReason::NO_PACKET_BUFFER, 1, length);
  }
  rte_pktmbuf_free(&packet);
}

void Receiver::keep(Target& target, const rte_mbuf& packet,
                    const steering::Verdict& verdict) noexcept {
  const std::uint32_t at = target.count++;
  std::uint8_t* data = data_of(packet);
  target.buffers[0][at] = PacketPool::number_of(packet);
  target.data[0][at] = verdict.transformed ? take_off(data, verdict.remains) : data;
  target.lengths[0][at] = verdict.length_of(packet.pkt_len);
  target.flows[at] = verdict.flow;
}

bool Receiver::copy(Target& target, const rte_mbuf& packet, const std::uint8_t* frame,
                    const steering::Verdict& verdict) noexcept {
  const RxQueue& queue = target.queue;
  std::array<std::uint32_t, MAX_NUM_SEGS> buffers;
  if (!take_buffers(queue, buffers)) return false;
  Segments out(queue, buffers);
  // Of a packet that may still belong to its sender: the original is not changed.
  std::uint32_t from = 0;
  std::uint32_t left = packet.pkt_len;
  if (verdict.transformed) {
    std::array<std::uint8_t, ETHERNET_SIZE> ethernet;
    verdict.remains.store_ethernet(frame, ethernet.data());
    out.put(ethernet.data(), ETHERNET_SIZE);
    from = verdict.remains.payload;
    left = verdict.remains.end - from;
  }
  for (const rte_mbuf* piece = &packet; piece != nullptr && left > 0; piece = piece->next) {
    const std::uint32_t skipped = std::min<std::uint32_t>(from, piece->data_len);
    const std::uint32_t part = std::min<std::uint32_t>(left, piece->data_len - skipped);
    out.put(data_of(*piece) + skipped, part);
    from -= skipped;
    left -= part;
  }
  const std::uint32_t at = target.count++;
  for (int s = 0; s < queue.num_segments(); ++s) {
    const auto segment = static_cast<std::size_t>(s);
    target.buffers[segment][at] = buffers[segment];
    target.data[segment][at] = queue.region(s).address(buffers[segment]);
    target.lengths[segment][at] = out.lengths[segment];
  }
  target.flows[at] = verdict.flow;
  return true;
}

void Receiver::deliver(std::uint64_t time) noexcept {
  for (Target& target : targets_) {
    if (target.count == 0) continue;
    RxBatch batch;
    batch.count = std::exchange(target.count, 0);
    for (std::size_t s = 0; s < static_cast<std::size_t>(target.queue.num_segments()); ++s) {
      batch.segments[s] = {.buffers = target.buffers[s].data(),
                           .data = target.data[s].data(),
                           .lengths = {target.lengths[s].data()}};
    }
    batch.flows.values = target.flows.data();
    batch.times.constant = time;
    target.queue.deliver(batch);
  }
}

void Receiver::drain() const noexcept {
  std::array<rte_mbuf*, AT_ONCE> packets;
  for (std::uint16_t queue = 0; queue < queues_; ++queue) {
    for (std::uint32_t seen = 0; seen < MOST_DRAINED; seen += AT_ONCE) {
      const std::uint16_t count = rte_eth_rx_burst(device_, queue, packets.data(), AT_ONCE);
      if (count == 0) break;
      rte_pktmbuf_free_bulk(packets.data(), count);
    }
  }
}

}  // namespace daqiri::dpdk
