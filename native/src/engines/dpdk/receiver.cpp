#include "engines/dpdk/receiver.h"

#include <rte_ethdev.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "net/headers.h"
#include "net/transforms.h"
#include "system/log.h"
#include "timing/clock.h"

namespace daqiri::dpdk {

namespace {

/// Limit for one pass, so that the poller's other work is not delayed.
constexpr std::uint32_t MOST_PER_PASS = 1024;
/// Limit for a device that never has enough.
constexpr std::uint32_t MOST_DRAINED = 1U << 16U;
/// Packets whose headers are prefetched.
constexpr std::uint32_t AHEAD = 4;
/// Packets whose mbufs are: where the headers are is in them, and they may be in another core's
/// cache, too.
constexpr std::uint32_t MBUFS_AHEAD = 2 * AHEAD;

/// Fills the buffers of a packet one after the other.
class Segments {
 public:
  Segments(const RxQueue& queue, const PacketBuffers& buffers) noexcept
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
  const PacketBuffers& buffers_;
  int segment_{0};
};

std::uint8_t* data_of(const rte_mbuf& packet) noexcept {
  return rte_pktmbuf_mtod(&packet, std::uint8_t*);
}

/// Headers, and the part of the mbuf that another core, its sender, may have written last. Inline:
/// GCC leaves out calls of functions that only prefetch, because they change nothing.
[[gnu::always_inline]] inline void prefetch(const rte_mbuf& packet) noexcept {
  __builtin_prefetch(data_of(packet));
  __builtin_prefetch(static_cast<const void*>(&packet.next));
}

/// The same for packets after this one, of which there are MBUFS_AHEAD.
[[gnu::always_inline]] inline void prefetch_after(rte_mbuf* const* packet) noexcept {
  __builtin_prefetch(packet[MBUFS_AHEAD]);
  prefetch(*packet[AHEAD]);
}

/// Put the tag back that the device has taken out.
void put_back_tag(rte_mbuf& packet) noexcept {
  auto* const frame = reinterpret_cast<std::uint8_t*>(rte_pktmbuf_prepend(&packet, RTE_VLAN_HLEN));
  if (frame == nullptr) return;
  std::memmove(frame, frame + RTE_VLAN_HLEN, ADDRESSES_SIZE);
  store_be16(frame + ADDRESSES_SIZE, RTE_ETHER_TYPE_VLAN);
  store_be16(frame + ADDRESSES_SIZE + 2, packet.vlan_tci);
}

/// The packet in place, less the headers that the verdict removes.
void keep(std::span<const PacketPool* const> pools, rte_mbuf& packet,
          const steering::Verdict& verdict, PlacedPacket& to) noexcept {
  if (pools.size() == 1) {
    std::uint8_t* const data = data_of(packet);
    to.buffers[0] = pools[0]->number_of(packet);
    to.data[0] = verdict.transformed ? take_off(data, verdict.remains) : data;
    to.lengths[0] = verdict.length_of(packet.pkt_len);
    return;
  }
  rte_mbuf* piece = &packet;
  for (std::size_t s = 0; s < pools.size(); ++s) {
    to.buffers[s] = pools[s]->number_of(*piece);
    to.data[s] = data_of(*piece);
    to.lengths[s] = piece->data_len;
    // As mbufs are in their pools.
    piece->nb_segs = 1;
    piece = std::exchange(piece->next, nullptr);
  }
}

/// Copy it to the buffers `to.buffers` of the queue; `frame`: its headers.
void copy(const RxQueue& queue, const rte_mbuf& packet, const std::uint8_t* frame,
          const steering::Verdict& verdict, PlacedPacket& to) noexcept {
  Segments out(queue, to.buffers);
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
  for (int s = 0; s < queue.num_segments(); ++s) {
    const auto segment = static_cast<std::size_t>(s);
    to.data[segment] = queue.region(s).address(to.buffers[segment]);
    to.lengths[segment] = out.lengths[segment];
  }
}

}  // namespace

Receiver::Receiver(const Port& port, RxQueue& first, std::uint16_t device,
                   std::vector<std::uint16_t> queues, std::vector<const PacketPool*> pools,
                   const CardClock* clock, const std::atomic<bool>& removed, std::uint32_t cut_at,
                   std::uint32_t buffers_ahead)
    : first_(first),
      device_(device),
      use_(removed),
      queues_(std::move(queues)),
      pools_(std::move(pools)),
      pool_(*pools_.front()),
      on_gpu_(!pools_.back()->region().host_readable()),
      clock_(clock),
      cut_at_(cut_at),
      buffers_ahead_(buffers_ahead),
      steering_(port.steering),
      run_(port.steering.add_tally()) {
  for (const auto& queue : port.rx) {
    bool stay = static_cast<std::size_t>(queue->num_segments()) == pools_.size();
    for (int s = 0; stay && s < queue->num_segments(); ++s)
      stay = &queue->region(s) == &pools_[static_cast<std::size_t>(s)]->region();
    const bool own = queue->config().common_.cpu_core_ == first.config().common_.cpu_core_;
    targets_.push_back({.queue = *queue,
                        .stay = stay,
                        .hand_over = own ? nullptr : std::make_unique<HandOver>(*queue)});
  }
  latest_ = &targets_.front();
}

HandOver* Receiver::hand_over_to(const RxQueue& queue) const noexcept {
  const auto is_its = [&](const Target& target) { return &target.queue == &queue; };
  return std::ranges::find_if(targets_, is_its)->hand_over.get();
}

Receiver::Target& Receiver::find_target(std::uint16_t queue) noexcept {
  const auto found = std::ranges::find_if(
      targets_, [&](const Target& target) { return target.queue.id() == queue; });
  latest_ = found == targets_.end() ? &targets_.front() : &*found;
  return *latest_;
}

bool Receiver::stays(const Target& target, const rte_mbuf& packet,
                     const steering::Verdict& verdict) const noexcept {
  if (!target.stay) return false;
  if (pools_.size() == 1) return pool_.holds(packet);
  // Without some of its headers, its pieces are others.
  if (verdict.transformed || packet.nb_segs != pools_.size()) return false;
  const rte_mbuf* piece = &packet;
  for (std::size_t s = 0; s < pools_.size(); ++s, piece = piece->next) {
    if (!pools_[s]->owns(*piece) ||
        piece->data_len > target.queue.segment_capacity(static_cast<int>(s)))
      return false;
  }
  return true;
}

std::uint32_t Receiver::receive() noexcept {
  const steering::Steering::Pass pass(steering_);
  const auto most = static_cast<std::uint32_t>(MOST_PER_PASS / queues_.size());
  std::uint32_t seen = 0;
  bool all_read = true;
  if (use_.begin()) {
    for (const std::uint16_t queue : queues_) {
      bool empty = false;
      seen += receive(queue, most, pass.program(), empty);
      all_read = all_read && empty;
    }
    use_.end();
  }
  for (const Target& target : targets_) {
    if (target.hand_over == nullptr) continue;
    if (all_read) target.hand_over->note_all_read(first_.pass_ns());
    target.hand_over->wake();
  }
  return seen;
}

std::uint32_t Receiver::keep_alike(std::span<rte_mbuf* const> packets, Target& target,
                                   const steering::Verdict& verdict,
                                   const CardClock::ReceiveTimes& times,
                                   std::uint64_t& bytes) noexcept {
  // Copies: for the compiler, what is written to the batch might change the originals.
  const steering::RecentVerdicts::Latest latest = steering_.latest();
  const PacketPool::Buffers buffers = pool_.buffers();
  // Lengths from `fewest` on, so many.
  const std::uint32_t fewest = latest.fewest;
  const std::uint32_t lengths = std::max(target.plain_below, fewest) - fewest;
  const Batch::Places places = target.batch.places();
  // A pointer: some packets after these are prefetched.
  rte_mbuf* const* const all = packets.data();
  const rte_mbuf* packet = all[0];
  const std::size_t count = packets.size();
  std::size_t n = 0;
  std::uint64_t sum = 0;
  for (;;) {
    places.buffers[n] = buffers.number_of(*packet);
    places.data[n] = data_of(*packet);
    places.lengths[n] = packet->pkt_len;
    sum += packet->pkt_len;
    if (++n == count) break;
    // As prefetch_after, without `next`, which is not read here.
    __builtin_prefetch(all[n + MBUFS_AHEAD]);
    __builtin_prefetch(data_of(*all[n + AHEAD]));
    packet = all[n];
    if ((packet->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0 || !buffers.hold(*packet) ||
        packet->pkt_len - fewest >= lengths || !latest.is(data_of(*packet)))
      break;
  }
  const auto kept = static_cast<std::uint32_t>(n);
  times.of(packets.first(n), places.times);
  target.batch.add(kept, verdict.flow);
  bytes += sum;
  return kept;
}

std::uint32_t Receiver::take_plain(std::span<rte_mbuf* const> packets, bool isolated,
                                   const CardClock::ReceiveTimes& times) noexcept {
  const auto count = static_cast<std::uint32_t>(packets.size());
  // The packets from `first` on have this verdict, and are not yet in run_.
  const steering::Verdict* verdict = nullptr;
  Target* target = nullptr;
  std::uint32_t first = 0;
  std::uint64_t bytes = 0;
  std::uint32_t i = 0;
  while (i < count) {
    prefetch_after(&packets[i]);
    rte_mbuf& packet = *packets[i];
    if ((packet.ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0 || packet.nb_segs != 1) break;
    std::uint8_t* const frame = data_of(packet);
    const std::uint32_t length = packet.pkt_len;
    const steering::Verdict* const its = steering_.recent(frame, length);
    if (its == nullptr) break;
    if (its != verdict) {
      if (isolated && !its->matched) break;
      if (verdict != nullptr) run_.add(verdict->position, i - first, bytes);
      verdict = its;
      target = &target_for(its->queue);
      first = i;
      bytes = 0;
    }
    if (length >= target->plain_below) break;
    if (target->stay && pool_.holds(packet)) {
      i += keep_alike(packets.subspan(i), *target, *its, times, bytes);
      continue;
    }
    PacketBuffers buffers;
    if (!target->stock.take(target->queue, count - i, buffers)) break;
    // Whoever had the buffer before has read it, on another core.
    if (const void* const later = target->stock.ahead(target->queue, AHEAD); later != nullptr)
      __builtin_prefetch(later, 1);
    void* const data = target->queue.region(0).address(buffers[0]);
    std::memcpy(data, frame, length);
    target->batch.add(buffers[0], data, length, its->flow, times.of(packet));
    done_[num_done_++] = &packet;
    bytes += length;
    ++i;
  }
  if (verdict != nullptr) run_.add(verdict->position, i - first, bytes);
  return i;
}

std::uint32_t Receiver::receive(std::uint16_t queue, std::uint32_t most,
                                const steering::Program& program, bool& empty) noexcept {
  std::array<std::optional<PacketPool::Stock>, MAX_NUM_SEGS> stocks;
  for (std::size_t s = 0; s < pools_.size(); ++s) stocks[s].emplace(*pools_[s]);
  std::array<rte_mbuf*, AT_ONCE + MBUFS_AHEAD> packets;
  std::uint32_t seen = 0;
  // Some drivers read fewer at once than there are.
  while (seen < most) {
    std::uint32_t at_once = std::min(AT_ONCE, most);
    if (buffers_ahead_ > 0) {
      at_once = std::min(at_once, stocks[0]->ready(buffers_ahead_) / buffers_ahead_);
      if (at_once == 0) {
        pool_.region().note_shortage();
        break;
      }
    }
    const std::uint32_t count =
        rte_eth_rx_burst(device_, queue, packets.data(), static_cast<std::uint16_t>(at_once));
    empty = count == 0;
    if (empty) break;
    const CardClock::ReceiveTimes times(clock_, realtime_ns());
    for (Target& target : targets_) {
      const bool plain = target.queue.num_segments() == 1 && target.hand_over == nullptr &&
                         !target.queue.discards();
      target.plain_below = plain ? std::min(target.queue.max_packet_size() + 1, cut_at_) : 0;
    }
    const bool isolated = program.isolated();
    // Each packet prefetches later ones: without asking whether there are so many.
    std::fill_n(packets.begin() + count, MBUFS_AHEAD, packets[count - 1]);
    for (std::uint32_t i = 0; i < MBUFS_AHEAD; ++i) __builtin_prefetch(packets[i]);
    for (std::uint32_t i = 0; i < AHEAD; ++i) prefetch(*packets[i]);
    for (std::uint32_t i = 0; i < count; ++i) {
      i += take_plain({packets.data() + i, count - i}, isolated, times);
      if (i < count) take(*packets[i], program, times.of(*packets[i]), count - i);
    }
    rte_pktmbuf_free_bulk(done_.data(), std::exchange(num_done_, 0));
    run_.end();
    for (Target& target : targets_) {
      target.batch.deliver(target.queue);
      target.stock.give_back(target.queue);
    }
    seen += count;
  }
  return seen;
}

std::span<const std::uint8_t> Receiver::beginning_of(
    const rte_mbuf& packet, const steering::Program& program,
    std::span<std::uint8_t, steering::MOST_KEY_BYTES> room) noexcept {
  if (packet.nb_segs == 1) return {data_of(packet), packet.pkt_len};
  // Headers may be in any of its pieces.
  const std::uint32_t wanted = std::min<std::uint32_t>(packet.pkt_len, room.size());
  if (!on_gpu_)
    return {static_cast<const std::uint8_t*>(rte_pktmbuf_read(&packet, 0, wanted, room.data())),
            wanted};
  const std::uint32_t first = packet.data_len;
  const std::uint8_t* const frame = data_of(packet);
  if (first >= wanted || steering_.recent(frame, first) != nullptr || program.decides(frame, first))
    return {frame, first};
  if (!std::exchange(told_headers_, true)) tell_headers(first);
  const rte_mbuf& second = *packet.next;
  const std::uint32_t rest = std::min<std::uint32_t>(wanted - first, second.data_len);
  std::memcpy(room.data(), frame, first);
  if (!pools_.back()->region().copy_to_host(data_of(second), &room[first], rest)) return {};
  return {room.data(), first + rest};
}

[[gnu::noinline]] void Receiver::take(rte_mbuf& packet, const steering::Program& program,
                                      std::uint64_t time, std::uint32_t left) noexcept {
  const bool cut = packet.pkt_len >= cut_at_;
  if ((packet.ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0) put_back_tag(packet);
  const std::uint32_t whole = packet.pkt_len;
  std::array<std::uint8_t, steering::MOST_KEY_BYTES> room;
  const std::span<const std::uint8_t> beginning = beginning_of(packet, program, room);
  const std::uint8_t* const frame = beginning.data();
  if (frame == nullptr) {
    // The GPU has failed. Without its headers, it is as one that was cut.
    lose(targets_.front(), DropReason::TRUNCATED, whole);
    done_[num_done_++] = &packet;
    return;
  }
  const steering::Verdict& verdict =
      steering_.classify(frame, static_cast<std::uint32_t>(beginning.size()), whole);
  Target& target = target_for(verdict.queue);
  RxQueue& queue = target.queue;
  HandOver* const hand_over = target.hand_over.get();
  const std::uint32_t length = verdict.length_of(whole);
  run_.add(verdict.position, 1, length);
  // Of those that are not published, the next packet claims the same one again.
  HandedPacket* const handed = hand_over != nullptr ? hand_over->claim() : nullptr;
  const bool stay = stays(target, packet, verdict);
  if (!verdict.matched && program.isolated()) {
    lose(target, DropReason::FILTERED, length);
  } else if (cut || length > queue.max_packet_size() || (on_gpu_ && packet.nb_segs > 1 && !stay)) {
    // The last: its pieces are none that can be copied.
    lose(target, DropReason::TRUNCATED, length);
  } else if (verdict.malformed) {
    lose(target, DropReason::MALFORMED, length);
  } else if (hand_over == nullptr && queue.discards()) {
    lose(target, queue.discard_reason(), length);
  } else if (hand_over != nullptr && handed == nullptr) {
    lose(target, DropReason::RING_FULL, length);
  } else {
    PlacedPacket here;
    PlacedPacket& placed = handed != nullptr ? handed->packet : here;
    if (stay) {
      keep(pools_, packet, verdict, placed);
    } else if (target.stock.take(queue, left, placed.buffers)) {
      copy(queue, packet, frame, verdict, placed);
    } else {
      queue.note_shortage();
      lose(target, DropReason::NO_PACKET_BUFFER, length);
      done_[num_done_++] = &packet;
      return;
    }
    placed.flow = verdict.flow;
    if (handed != nullptr) {
      handed->time = time;
      run_.end();
      hand_over->publish();
    } else {
      target.batch.add(placed, static_cast<std::size_t>(queue.num_segments()), time);
    }
    if (stay) return;
  }
  done_[num_done_++] = &packet;
}

void Receiver::tell_headers(std::uint32_t first) const noexcept {
  try {
    log(LogLevel::WARN,
        "interface '" + first_.interface_name() + "': packets have headers after their first " +
            std::to_string(first) +
            " bytes (IPv6, VLAN tags, options), which are read back from the GPU, one packet at a "
            "time; raise split_boundary of the receive queues, and buf_size of their first memory "
            "region",
        {.interface = first_.interface_name(), .queue = {}});
  } catch (const std::bad_alloc&) {
    // Packets are slow, not wrong.
    return;
  }
}

void Receiver::lose(Target& target, DropReason reason, std::uint32_t length) noexcept {
  // A flow counts its packets before the queue does.
  run_.end();
  if (target.hand_over != nullptr) {
    target.hand_over->lose(reason, 1, length);
  } else {
    target.queue.drop(reason, 1, length);
  }
}

void Receiver::finish() noexcept {
  for (const Target& target : targets_)
    if (target.hand_over != nullptr) target.hand_over->end();
}

void Receiver::discard_rest() noexcept {
  for (const Target& target : targets_)
    if (target.hand_over != nullptr) target.hand_over->discard_rest();
}

std::uint32_t Receiver::drain_device() noexcept {
  std::array<rte_mbuf*, AT_ONCE> packets;
  std::uint32_t drained = 0;
  for (const std::uint16_t queue : queues_) {
    for (std::uint32_t seen = 0; seen < MOST_DRAINED; seen += AT_ONCE) {
      const std::uint16_t count = rte_eth_rx_burst(device_, queue, packets.data(), AT_ONCE);
      if (count == 0) break;
      rte_pktmbuf_free_bulk(packets.data(), count);
      drained += count;
    }
  }
  return drained;
}

}  // namespace daqiri::dpdk
