// The poller's side of a receive queue: packets into bursts, bursts into rings, counts.
#include <algorithm>
#include <utility>

#include "io/rx_queue.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

std::uint64_t& count_of(DropCounts& counts, DropReason reason) {
  return counts[static_cast<std::size_t>(reason)];
}

}  // namespace

Burst* RxQueue::take_burst() noexcept {
  return spare_ != nullptr ? std::exchange(spare_, nullptr) : pool_->take();
}

std::uint32_t RxQueue::room(Channel& channel) noexcept {
  // An open burst has its place in the ring: there was room when it was begun, and nobody else
  // pushes.
  if (channel.open != nullptr) {
    return channel.open->capacity - static_cast<std::uint32_t>(channel.open->hdr.hdr.num_pkts);
  }
  if (!channel.ring.has_room()) return 0;
  if (num_channels_.load(std::memory_order_relaxed) > 2) {
    const std::size_t held = channel.ring.size();
    if (held > pool_->available() || held * pool_->capacity() > regions_[0]->available()) return 0;
  }
  if (spare_ == nullptr) spare_ = pool_->take();
  return spare_ != nullptr ? spare_->capacity : 0;
}

void RxQueue::finish(Channel& channel) noexcept {
  if (channel.open != nullptr) hand_over(channel);
}

Burst* RxQueue::begin_burst(Channel& channel) noexcept {
  Burst* burst = take_burst();
  if (burst == nullptr) return nullptr;
  burst->hdr.hdr.port_id = port_id_;
  burst->hdr.hdr.q_id = id();
  burst->hdr.hdr.max_pkt = burst->capacity;
  burst->hdr.hdr.max_pkt_size = max_packet_size_;
  burst->connection_id = channel.connection_id.load(std::memory_order_relaxed);
  burst->stream = channel.stream;
  burst->ends = channel.ends;
  for (std::size_t s = 0; s < regions_.size(); ++s) burst->regions[s] = regions_[s];
  burst->begun_ns = monotonic_ns();
  channel.open = burst;
  return burst;
}

void RxQueue::deliver(Channel& channel, const ReceivedPacket& packet) noexcept {
  ReceivedRun run;
  run.count = 1;
  for (std::size_t s = 0; s < regions_.size(); ++s) {
    run.buffers[s] = &packet.buffers[s];
    run.last_lengths[s] = packet.lengths[s];
  }
  run.flow = packet.flow;
  run.timestamp = packet.timestamp;
  deliver_run(channel, run);
}

void RxQueue::deliver_run(Channel& channel, const ReceivedRun& run) noexcept {
  dirty_ = true;
  const std::size_t segments = regions_.size();
  std::uint64_t length = 0;
  std::uint64_t last_length = 0;
  for (std::size_t s = 0; s < segments; ++s) {
    length += run.lengths[s];
    last_length += run.last_lengths[s];
  }
  const auto bytes_of = [&](std::uint32_t n, bool ends) {
    return ends ? length * (n - 1) + last_length : length * n;
  };
  // What is handed over on the way is published: each packet is counted with where it went.
  const auto refuse = [&](std::uint32_t first, DropReason reason) {
    const std::uint32_t n = run.count - first;
    for (std::size_t s = 0; s < segments; ++s) regions_[s]->give(run.buffers[s] + first, n);
    drop(reason, n, bytes_of(n, true));
  };
  if (run.timestamp < filter_before_ns_.load(std::memory_order_relaxed))
    return refuse(0, DropReason::FILTERED);
  if (run.timestamp < flush_before_ns_.load(std::memory_order_relaxed))
    return refuse(0, DropReason::FLUSHED);
  for (std::uint32_t done = 0; done < run.count;) {
    Burst* burst = channel.open != nullptr ? channel.open : begin_burst(channel);
    if (burst == nullptr) return refuse(done, DropReason::NO_BURST_BUFFER);
    const auto at = static_cast<std::uint32_t>(burst->hdr.hdr.num_pkts);
    const std::uint32_t n = std::min(run.count - done, burst->capacity - at);
    const bool ends = done + n == run.count;
    for (std::size_t s = 0; s < segments; ++s) {
      const memory::MemoryRegion& region = *regions_[s];
      const std::uint32_t* numbers = run.buffers[s] + done;
      std::copy_n(numbers, n, burst->buffers[s] + at);
      void** data = burst->pkts[s] + at;
      for (std::uint32_t i = 0; i < n; ++i) data[i] = region.address(numbers[i]);
      std::fill_n(burst->pkt_lens[s] + at, n, run.lengths[s]);
      if (ends) burst->pkt_lens[s][at + n - 1] = run.last_lengths[s];
    }
    std::fill_n(burst->flow_ids + at, n, run.flow);
    std::fill_n(burst->timestamps + at, n, run.timestamp);
    const std::uint64_t bytes = bytes_of(n, ends);
    burst->hdr.hdr.nbytes += bytes;
    burst->hdr.hdr.num_pkts = at + n;
    burst->owned = at + n;
    tally_.received += n;
    tally_.received_bytes += bytes;
    tally_.open += n;
    done += n;
    if (at + n == burst->capacity) hand_over(channel);
  }
}

void RxQueue::drop(DropReason reason, std::uint64_t n, std::uint64_t bytes) noexcept {
  dirty_ = true;
  tally_.received += n;
  tally_.received_bytes += bytes;
  count_of(tally_.dropped, reason) += n;
}

void RxQueue::hand_over(Channel& channel) noexcept {
  Burst* burst = std::exchange(channel.open, nullptr);
  const std::uint32_t n = burst->num_packets();
  tally_.open -= n;
  tally_.enqueued += n;
  ++tally_.bursts;
  // Published before a consumer can count the burst as delivered.
  publish();
  if (channel.ring.push(burst)) {
    tally_.ring_high_water = std::max<std::uint64_t>(tally_.ring_high_water, channel.ring.size());
    doorbell_.ring();
    return;
  }
  tally_.enqueued -= n;
  --tally_.bursts;
  count_of(tally_.dropped, DropReason::RING_FULL) += n;
  dirty_ = true;
  burst->release();
}

std::uint64_t RxQueue::flush_expired(std::uint64_t now_ns) noexcept {
  if (config_.timeout_us_ == 0 || tally_.open == 0) return 0;
  const std::uint64_t timeout = std::uint64_t{config_.timeout_us_} * 1000U;
  std::uint64_t next = 0;
  const std::size_t n = num_channels_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < n; ++i) {
    Channel& channel = *channels_[i].load(std::memory_order_relaxed);
    if (channel.open == nullptr) continue;
    const std::uint64_t due = channel.open->begun_ns + timeout;
    if (due <= now_ns) {
      hand_over(channel);
    } else if (next == 0 || due < next) {
      next = due;
    }
  }
  return next;
}

void RxQueue::flush_open() noexcept {
  const std::size_t n = num_channels_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < n; ++i) {
    Channel& channel = *channels_[i].load(std::memory_order_relaxed);
    if (channel.open != nullptr) hand_over(channel);
  }
}

void RxQueue::flush_all(DropReason reason) noexcept {
  const std::size_t n = num_channels_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < n; ++i) {
    Channel& channel = *channels_[i].load(std::memory_order_relaxed);
    if (channel.open != nullptr) {
      Burst* burst = std::exchange(channel.open, nullptr);
      tally_.open -= burst->num_packets();
      count_of(tally_.dropped, reason) += burst->num_packets();
      burst->release();
    }
    Burst* burst = nullptr;
    // Bounded: what is pushed is pushed by this thread.
    while (channel.ring.pop(burst)) {
      tally_.enqueued -= burst->num_packets();
      count_of(tally_.dropped, reason) += burst->num_packets();
      burst->release();
    }
  }
  dirty_ = true;
}

void RxQueue::drop_on_wire(DropReason reason, std::uint64_t bytes) noexcept {
  WireDrops& drops = wire_drops_[static_cast<std::size_t>(reason)];
  drops.bytes.fetch_add(bytes, std::memory_order_relaxed);
  drops.packets.fetch_add(1, std::memory_order_release);
}

void RxQueue::collect_wire_drops() noexcept {
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r) {
    const std::uint64_t packets = wire_drops_[r].packets.load(std::memory_order_acquire);
    if (packets == wire_drops_seen_[r]) continue;
    const std::uint64_t bytes = wire_drops_[r].bytes.load(std::memory_order_relaxed);
    drop(static_cast<DropReason>(r), packets - wire_drops_seen_[r], bytes - wire_bytes_seen_[r]);
    wire_drops_seen_[r] = packets;
    wire_bytes_seen_[r] = bytes;
  }
}

void RxQueue::begin_pass() noexcept {
  flush_due_ = flush_requests_.load(std::memory_order_acquire);
}

void RxQueue::end_pass() noexcept {
  collect_wire_drops();
  if (flushing()) {
    flush_all(filter_before_ns_.load(std::memory_order_relaxed) == FILTER_ALL
                  ? DropReason::FILTERED
                  : DropReason::FLUSHED);
    publish();
    flushes_done_.store(flush_due_, std::memory_order_release);
  }
  if (dirty_) publish();
}

void RxQueue::publish() noexcept {
  std::array<std::uint64_t, TALLY_SIZE> values{
      tally_.received, tally_.received_bytes, tally_.enqueued,       tally_.open,
      tally_.bursts,   tally_.truncated,      tally_.ring_high_water};
  std::copy(tally_.dropped.begin(), tally_.dropped.end(), values.begin() + 7);
  published_.publish(values);
  dirty_ = false;
}

bool RxQueue::reassign(Channel& channel, std::uintptr_t connection_id,
                       const BurstEnds& ends) noexcept {
  Channel& main = main_channel();
  const auto move = [&] {
    Burst* burst = nullptr;
    while (main.ring.has_room() && channel.ring.pop(burst)) main.ring.push(burst);
  };
  const std::lock_guard lock(reassigning_);
  move();
  // Its ring is empty now, so that the open burst is not lost.
  if (channel.ring.size() == 0) finish(channel);
  move();
  const bool empty = channel.open == nullptr && channel.ring.size() == 0;
  if (empty) {
    channel.connection_id.store(connection_id, std::memory_order_release);
    channel.ends = ends;
  }
  tally_.ring_high_water = std::max<std::uint64_t>(tally_.ring_high_water, main.ring.size());
  dirty_ = true;
  doorbell_.ring();
  return empty;
}

}  // namespace daqiri
