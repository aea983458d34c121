// The poller's side of a receive queue.
#include <algorithm>
#include <utility>

#include "io/rx_queue.h"

namespace daqiri {

namespace {

/// Time until packets that found no space are tried again.
constexpr std::uint64_t ROOM_AGAIN_NS = 500'000;

}  // namespace

void RxQueue::deliver(RxSource& source, const RxBatch& batch) noexcept {
  const std::uint64_t bytes = bytes_of(batch, 0, batch.count);
  dirty_ = true;
  tally_.received += batch.count;
  tally_.received_bytes += bytes;
  if (discards()) [[unlikely]] {
    give_back(batch, 0);
    tally_.dropped[discard_reason()] += batch.count;
    return;
  }
  tally_.held += batch.count;
  if (stage_ != nullptr) return stage_->take(*this, source, batch);
  put_into_bursts(source, batch, bytes);
}

void RxQueue::pass_on(RxSource& source, const RxBatch& batch) noexcept {
  if (discarding()) [[unlikely]] {
    give_back(batch, 0);
    return drop_held(discard_reason(), batch.count);
  }
  put_into_bursts(source, batch, bytes_of(batch, 0, batch.count));
}

void RxQueue::put_into_bursts(RxSource& source, const RxBatch& batch,
                              std::uint64_t bytes) noexcept {
  // All buffers of a burst are freed to the same owners.
  for (std::size_t s = 0; source.open_ != nullptr && s < buffers_.size(); ++s)
    if (source.open_->owners[s] != owner_of(batch, s)) finish(source);
  for (std::uint32_t done = 0; done < batch.count;) {
    Burst* burst = source.open_ != nullptr ? source.open_ : open_burst(source, batch, done);
    if (burst == nullptr) {
      give_back(batch, done);
      return drop_held(DropReason::NO_BURST_BUFFER, batch.count - done);
    }
    const std::uint32_t n = std::min(batch.count - done, burst->capacity - burst->num_packets());
    const std::uint64_t added = done + n == batch.count ? bytes : bytes_of(batch, done, n);
    add(*burst, batch, done, n);
    burst->hdr.hdr.nbytes += added;
    bytes -= added;
    done += n;
    if (burst->num_packets() == burst->capacity) finish(source);
  }
}

void RxQueue::add(Burst& burst, const RxBatch& batch, std::uint32_t first,
                  std::uint32_t n) const noexcept {
  const std::uint32_t at = burst.num_packets();
  for (std::size_t s = 0; s < buffers_.size(); ++s) {
    const RxBatch::Segment& segment = batch.segments[s];
    const std::uint32_t* numbers = segment.buffers + first;
    std::uint32_t* kept = burst.buffers[s] + at;
    void** data = burst.pkts[s] + at;
    if (segment.data != nullptr) {
      std::copy_n(numbers, n, kept);
      std::copy_n(segment.data + first, n, data);
    } else {
      const memory::MemoryRegion& region = *regions_[s];
      for (std::uint32_t i = 0; i < n; ++i) {
        kept[i] = numbers[i];
        data[i] = region.address(numbers[i]);
      }
    }
    segment.lengths.copy(first, n, burst.pkt_lens[s] + at);
  }
  batch.flows.copy(first, n, burst.flow_ids + at);
  batch.times.copy(first, n, burst.timestamps + at);
  burst.hdr.hdr.num_pkts = at + n;
  burst.owned = at + n;
}

std::uint64_t RxQueue::bytes_of(const RxBatch& batch, std::uint32_t first,
                                std::uint32_t n) const noexcept {
  std::uint64_t bytes = 0;
  for (std::size_t s = 0; s < buffers_.size(); ++s)
    bytes += batch.segments[s].lengths.sum(first, n);
  return bytes;
}

void RxQueue::give_back(const RxBatch& batch, std::uint32_t first) const noexcept {
  for (std::size_t s = 0; s < buffers_.size(); ++s)
    owner_of(batch, s)->give(batch.segments[s].buffers + first, batch.count - first);
}

Burst* RxQueue::open_burst(RxSource& source, const RxBatch& batch, std::uint32_t first) noexcept {
  Burst* burst = spare_ != nullptr ? std::exchange(spare_, nullptr) : pool_->take();
  if (burst == nullptr) return nullptr;
  burst->hdr.hdr.port_id = port_id_;
  burst->hdr.hdr.q_id = id();
  burst->hdr.hdr.max_pkt = burst->capacity;
  burst->hdr.hdr.max_pkt_size = max_packet_size_;
  burst->connection_id = source.connection;
  burst->ends = source.ends;
  burst->stream = source.stream;
  if (source.stream.number != 0) burst->stream.offset += bytes_of(batch, 0, first);
  burst->waiting = &source.waiting;
  for (std::size_t s = 0; s < buffers_.size(); ++s) burst->owners[s] = owner_of(batch, s);
  burst->on_device = written_on_device_;
  burst->begun_ns = pass_ns_;
  source.open_ = burst;
  source.older_ = newest_;
  source.newer_ = nullptr;
  (newest_ != nullptr ? newest_->newer_ : oldest_) = &source;
  newest_ = &source;
  ++num_open_;
  return burst;
}

Burst* RxQueue::close_burst(RxSource& source) noexcept {
  Burst* burst = std::exchange(source.open_, nullptr);
  if (burst == nullptr) return nullptr;
  (source.older_ != nullptr ? source.older_->newer_ : oldest_) = source.newer_;
  (source.newer_ != nullptr ? source.newer_->older_ : newest_) = source.older_;
  --num_open_;
  return burst;
}

void RxQueue::drop_held(DropReason reason, std::uint64_t n) noexcept {
  dirty_ = true;
  tally_.held -= n;
  tally_.dropped[reason] += n;
}

void RxQueue::drop(DropReason reason, std::uint64_t n, std::uint64_t bytes) noexcept {
  dirty_ = true;
  tally_.received += n;
  tally_.received_bytes += bytes;
  tally_.dropped[reason] += n;
  if (reason == DropReason::NO_PACKET_BUFFER) note_shortage();
}

void RxQueue::note_shortage() noexcept {
  for (memory::BufferOwner* owner : buffers_) {
    if (owner->levels().free == 0) owner->note_shortage();
  }
}

void RxQueue::ask_for_buffers() noexcept {
  for (memory::BufferOwner* owner : buffers_) {
    if (owner->levels().free == 0) owner->ask_for_buffers();
  }
}

bool RxQueue::starves() noexcept {
  std::uint64_t shortages = 0;
  for (const memory::BufferOwner* owner : buffers_) shortages += owner->shortages();
  if (shortages == shortages_seen_ || ring_.size() > 0) return false;
  shortages_seen_ = shortages;
  return true;
}

std::uint32_t RxQueue::room(RxSource& source) noexcept {
  if (discarding() || filtering_) return pool_->capacity();
  if (source.open_ != nullptr) return source.open_->capacity - source.open_->num_packets();
  // Each open burst has its place reserved in the ring, to which only this thread pushes.
  const std::size_t waiting = source.waiting.load(std::memory_order_relaxed);
  const bool to_others =
      num_sources_.load(std::memory_order_relaxed) > 1 && waiting > buffers_.front()->levels().free;
  const bool ring_full = ring_.size() + num_open_ >= ring_.capacity();
  if (spare_ == nullptr && !ring_full && !to_others) spare_ = pool_->take();
  const bool none = ring_full || to_others || spare_ == nullptr;
  no_room_ = no_room_ || none;
  return none ? 0 : spare_->capacity;
}

void RxQueue::finish(RxSource& source) noexcept {
  if (Burst* burst = close_burst(source)) put_into_ring(burst);
}

void RxQueue::finish_unless_of(RxSource& source, const memory::BufferOwner* owner) noexcept {
  if (owner == nullptr) owner = buffers_.front();
  if (source.open_ != nullptr && source.open_->owners[0] != owner) finish(source);
}

RxSource& RxQueue::add_source(std::uintptr_t connection, const BurstEnds& ends) {
  const std::lock_guard lock(sources_mutex_);
  const auto idle = std::find_if(retired_.begin(), retired_.end(), [](const RxSource* source) {
    return source->waiting.load(std::memory_order_acquire) == 0;
  });
  RxSource* source = nullptr;
  if (idle != retired_.end()) {
    source = *idle;
    *idle = retired_.back();
    retired_.pop_back();
  } else {
    source = &sources_.emplace_back();
    retired_.reserve(sources_.size());
  }
  num_sources_.fetch_add(1, std::memory_order_relaxed);
  source->connection = connection;
  source->ends = ends;
  source->stream = {};
  return *source;
}

void RxQueue::retire(RxSource& source) noexcept {
  finish(source);
  const std::lock_guard lock(sources_mutex_);
  // `add_source` has reserved the space.
  retired_.push_back(&source);
  num_sources_.fetch_sub(1, std::memory_order_relaxed);
}

void RxQueue::put_into_ring(Burst* burst) noexcept {
  const std::uint32_t n = burst->num_packets();
  tally_.bursts += 1;
  // Before the push, because consumers subtract what they pop from the ring. Published before a
  // consumer can count the burst as delivered.
  burst->waiting->fetch_add(n, std::memory_order_relaxed);
  publish();
  if (ring_.push(burst)) {
    tally_.ring_high_water = std::max<std::uint64_t>(tally_.ring_high_water, ring_.size());
    ready_.ring();
    return;
  }
  burst->waiting->fetch_sub(n, std::memory_order_relaxed);
  tally_.bursts -= 1;
  drop_held(DropReason::RING_FULL, n);
  burst->release();
}

std::uint64_t RxQueue::deliver_expired(std::uint64_t now_ns) noexcept {
  const std::uint64_t stage_due = stage_ != nullptr ? stage_->expire(now_ns) : 0;
  while (at_once_ && oldest_ != nullptr) finish(*oldest_);
  // The oldest burst is due first, because all have the same timeout; 0: none.
  std::uint64_t due = 0;
  while (oldest_ != nullptr && config_.timeout_us_ > 0) {
    due = oldest_->open_->begun_ns + config_.timeout_us_ * 1000U;
    if (due > now_ns) break;
    finish(*oldest_);
    due = 0;
  }
  const auto sooner = [](std::uint64_t a, std::uint64_t b) {
    return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
  };
  // There is no notification when space becomes free.
  const std::uint64_t again = std::exchange(no_room_, false) ? now_ns + ROOM_AGAIN_NS : 0;
  return sooner(sooner(due, stage_due), again);
}

void RxQueue::deliver_all() noexcept {
  if (stage_ != nullptr) stage_->finish();
  deliver_open();
}

void RxQueue::deliver_open() noexcept {
  while (oldest_ != nullptr) finish(*oldest_);
}

void RxQueue::discard_queued(DropReason reason) noexcept {
  if (stage_ != nullptr) stage_->discard();
  const auto discard = [&](Burst* burst) {
    drop_held(reason, burst->num_packets());
    burst->release();
  };
  while (oldest_ != nullptr) discard(close_burst(*oldest_));
  const auto discard_waiting = [&](Burst* burst) {
    burst->waiting->fetch_sub(burst->num_packets(), std::memory_order_relaxed);
    discard(burst);
  };
  {
    const std::lock_guard lock(aside_mutex_);
    std::for_each(aside_.begin(), aside_.end(), discard_waiting);
    aside_.clear();
    num_aside_.store(0, std::memory_order_release);
  }
  // This loop ends, because only this thread pushes.
  Burst* burst = nullptr;
  while (ring_.pop(burst)) discard_waiting(burst);
}

void RxQueue::begin_pass(std::uint64_t now_ns) noexcept {
  pass_ns_ = now_ns;
  discards_due_ = discard_requests_.load(std::memory_order_acquire);
  if (discarding() && filter_wanted_.load(std::memory_order_acquire)) filtering_ = true;
}

void RxQueue::end_pass() noexcept {
  if (discarding()) {
    discard_queued(discard_reason());
    filtering_ = filter_wanted_.load(std::memory_order_acquire);
    publish();
    discards_done_.store(discards_due_, std::memory_order_release);
  }
  if (dirty_) publish();
}

void RxQueue::publish() noexcept {
  published_.publish(tally_);
  dirty_ = false;
}

}  // namespace daqiri
