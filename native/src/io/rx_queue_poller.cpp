// The poller's side of a receive queue.
#include <algorithm>
#include <utility>

#include "io/rx_queue.h"

namespace daqiri {

namespace {

std::uint64_t& count_of(DropCounts& counts, DropReason reason) {
  return counts[static_cast<std::size_t>(reason)];
}

}  // namespace

void RxQueue::deliver(RxSource& source, const RxBatch& batch) noexcept {
  const std::uint64_t bytes = batcher_->bytes_of(batch, 0, batch.count);
  dirty_ = true;
  tally_.received += batch.count;
  tally_.received_bytes += bytes;
  if (discarding() || filtering_) [[unlikely]] {
    batcher_->give_back(batch, 0);
    count_of(tally_.dropped, discard_reason()) += batch.count;
  } else if (stage_ != nullptr) {
    tally_.held += batch.count;
    stage_->take(*this, source, batch);
  } else {
    tally_.held += batch.count;
    put_into_bursts(source, batch, bytes);
  }
}

void RxQueue::pass_on(RxSource& source, const RxBatch& batch) noexcept {
  put_into_bursts(source, batch, batcher_->bytes_of(batch, 0, batch.count));
}

void RxQueue::put_into_bursts(RxSource& source, const RxBatch& batch,
                              std::uint64_t bytes) noexcept {
  for (std::uint32_t done = 0; done < batch.count;) {
    if (batcher_->other_owners(source, batch)) finish(source);
    const std::uint32_t n = batcher_->add(source, batch, done, bytes);
    if (n == 0) {
      batcher_->give_back(batch, done);
      return drop_staged(DropReason::NO_BURST_BUFFER,
                         std::uint64_t{batch.count - done} * batch.sources_each);
    }
    done += n;
    if (batcher_->full(source)) finish(source);
  }
}

void RxQueue::drop_staged(DropReason reason, std::uint64_t n) noexcept {
  dirty_ = true;
  tally_.held -= n;
  count_of(tally_.dropped, reason) += n;
}

void RxQueue::drop(DropReason reason, std::uint64_t n, std::uint64_t bytes) noexcept {
  dirty_ = true;
  tally_.received += n;
  tally_.received_bytes += bytes;
  count_of(tally_.dropped, reason) += n;
  // With a timeout, open bursts are delivered anyway.
  starves_ = starves_ || (reason == DropReason::NO_PACKET_BUFFER && config_.timeout_us_ == 0);
}

std::uint32_t RxQueue::room(RxSource& source) noexcept {
  if (discarding() || filtering_) return pool_->capacity();
  const std::uint32_t in_burst = batcher_->room_in_open(source);
  if (in_burst > 0) return in_burst;
  // Each open burst has its place in the ring, where nobody else pushes.
  const std::size_t in_ring = ring_.size();
  if (in_ring + batcher_->num_open() >= ring_.capacity()) return 0;
  const std::size_t waiting = source.waiting.load(std::memory_order_relaxed);
  if (num_sources_.load(std::memory_order_relaxed) > 1 && waiting > 0 &&
      (waiting > pool_->available() || waiting * pool_->capacity() > regions_.front()->available()))
    return 0;
  return batcher_->room_in_next();
}

void RxQueue::finish(RxSource& source) noexcept {
  if (Burst* burst = batcher_->close(source)) put_into_ring(burst);
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
  // There is room for all of them.
  retired_.push_back(&source);
  num_sources_.fetch_sub(1, std::memory_order_relaxed);
}

void RxQueue::put_into_ring(Burst* burst) noexcept {
  const std::uint32_t n = burst->source_packets;
  ++tally_.bursts.value;
  // Before the push: what is taken from the ring is counted there. Published before a consumer can
  // count the burst as delivered.
  burst->waiting->fetch_add(1, std::memory_order_relaxed);
  publish();
  if (ring_.push(burst)) {
    const std::uint64_t size = ring_.size();
    if (size > tally_.ring_high_water) tally_.ring_high_water = size;
    ready_.ring();
    return;
  }
  burst->waiting->fetch_sub(1, std::memory_order_relaxed);
  tally_.bursts -= 1;
  drop_staged(DropReason::RING_FULL, n);
  burst->release();
}

std::uint64_t RxQueue::deliver_expired(std::uint64_t now_ns) noexcept {
  const std::uint64_t stage_due = stage_ != nullptr ? stage_->expire(*this, now_ns) : 0;
  // The oldest burst is due first: all have the same timeout.
  std::uint64_t due = batcher_->due();
  for (; due != 0 && due <= now_ns; due = batcher_->due()) finish(*batcher_->oldest());
  if (due == 0 || stage_due == 0) return std::max(due, stage_due);
  return std::min(due, stage_due);
}

void RxQueue::deliver_open() noexcept {
  if (stage_ != nullptr) stage_->finish(*this);
  while (RxSource* source = batcher_->oldest()) finish(*source);
}

void RxQueue::discard_queued(DropReason reason) noexcept {
  if (stage_ != nullptr) drop_staged(reason, stage_->discard());
  const auto discard = [&](Burst* burst) {
    drop_staged(reason, burst->source_packets);
    burst->release();
  };
  while (RxSource* source = batcher_->oldest()) discard(batcher_->close(*source));
  const auto discard_waiting = [&](Burst* burst) {
    burst->waiting->fetch_sub(1, std::memory_order_relaxed);
    discard(burst);
  };
  {
    const std::lock_guard lock(aside_mutex_);
    std::for_each(aside_.begin(), aside_.end(), discard_waiting);
    aside_.clear();
    num_aside_.store(0, std::memory_order_release);
  }
  // Ends: what is pushed is pushed by this thread.
  Burst* burst = nullptr;
  while (ring_.pop(burst)) discard_waiting(burst);
}

void RxQueue::begin_pass() noexcept {
  starves_ = false;
  discards_due_ = discard_requests_.load(std::memory_order_acquire);
  if (discarding() && filter_wanted_.load(std::memory_order_acquire)) filtering_ = true;
}

void RxQueue::end_pass() noexcept {
  if (discarding()) {
    discard_queued(discard_reason());
    filtering_ = filter_wanted_.load(std::memory_order_acquire);
    discards_done_ = discards_due_;
    publish();
    discards_answered_.store(discards_done_, std::memory_order_release);
  }
  if (dirty_) publish();
}

void RxQueue::publish() noexcept {
  published_.publish(tally_);
  dirty_ = false;
}

}  // namespace daqiri
