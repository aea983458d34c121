#include "io/tx_queue.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "daqiri/error.h"
#include "io/io_engine.h"

namespace daqiri {

using Outcome = DirectWork::Outcome;

TxQueue::TxQueue(const InterfaceConfig& interface, const TxQueueConfig& config,
                 std::uint32_t meta_buffers, std::shared_ptr<SessionMemory> memory)
    : QueueBase(interface, config, std::move(memory)),
      ring_(std::clamp<std::size_t>(meta_buffers, 2, MOST_BURSTS_IN_RING)),
      in_flight_(meta_buffers) {
  std::uint64_t fewest = std::numeric_limits<std::uint32_t>::max();
  for (const auto* region : regions_) {
    max_packet_size_ += region->buf_size();
    fewest = std::min(fewest, region->config().num_bufs_);
  }
  most_packets_ = static_cast<std::uint32_t>(fewest);
}

TxQueue::~TxQueue() {
  for (; in_flight_.ready() > 0; in_flight_.consume(1)) in_flight_.at(0)->release();
  if (current_ != nullptr) current_->release();
  Burst* burst = nullptr;
  while (ring_.pop(burst)) burst->release();
}

// --- Application

Status TxQueue::allocate(std::uint32_t num_packets, Burst** burst) noexcept {
  *burst = nullptr;
  if (num_packets == 0 || num_packets > most_packets()) return Status::INVALID_PARAMETER;
  if (closed()) return Status::NOT_READY;
  work();
  Burst* taken = memory_->tx_pool->take();
  if (taken == nullptr) return Status::NO_FREE_BURST_BUFFERS;
  taken->keep = memory_;
  taken->state.store(BurstState::APPLICATION, std::memory_order_release);
  const Status status = fill(*taken, num_packets);
  if (status == Status::SUCCESS) {
    *burst = taken;
  } else {
    taken->release();
  }
  return status;
}

bool TxQueue::has_buffers(std::uint32_t num_packets) noexcept {
  work();
  bool enough = true;
  for (int s = 0; s < num_segments(); ++s) {
    if (region(s).available() >= num_packets) continue;
    // Open bursts of receive queues may hold the others.
    region(s).ask_for_buffers();
    enough = false;
  }
  return enough;
}

Status TxQueue::fill(Burst& burst, std::uint32_t num_packets) noexcept {
  if (num_packets == 0 || num_packets > most_packets() || burst.owned != 0)
    return Status::INVALID_PARAMETER;
  if (num_packets > burst.capacity && !burst.home->enlarge(burst, num_packets))
    return Status::NO_FREE_BURST_BUFFERS;
  const int segments = num_segments();
  for (int s = 0; s < segments; ++s) {
    const std::uint32_t taken = region(s).take(burst.buffers[s], num_packets);
    if (taken == num_packets) continue;
    region(s).give(burst.buffers[s], taken);
    for (int t = 0; t < s; ++t) region(t).give(burst.buffers[t], num_packets);
    static_cast<void>(has_buffers(num_packets));
    return Status::NO_FREE_PACKET_BUFFERS;
  }
  for (int s = 0; s < segments; ++s) {
    burst.owners[s] = &region(s);
    for (std::uint32_t i = 0; i < num_packets; ++i) {
      burst.pkts[s][i] = region(s).address(burst.buffers[s][i]);
      // The application writes it next; another core has read it last.
      __builtin_prefetch(burst.pkts[s][i], 1);
    }
    std::fill_n(burst.pkt_lens[s], num_packets, 0U);
  }
  std::fill_n(burst.flow_ids, num_packets, FlowId{0});
  std::fill_n(burst.timestamps, num_packets, std::uint64_t{0});
  burst.owned = num_packets;
  burst.hdr.hdr.num_pkts = num_packets;
  burst.hdr.hdr.num_segs = segments;
  burst.hdr.hdr.port_id = port_id_;
  burst.hdr.hdr.q_id = id();
  burst.hdr.hdr.max_pkt = burst.capacity;
  burst.hdr.hdr.max_pkt_size = max_packet_size_;
  burst.hdr.hdr.nbytes = 0;
  return Status::SUCCESS;
}

Status TxQueue::send(Burst* burst) noexcept {
  const std::uint32_t n = burst->num_packets();
  if (n == 0 || n > burst->owned) return Status::INVALID_PARAMETER;
  // Before the push, so that no snapshot counts a packet as sent that was not submitted; and before
  // closed_ is read, so that `flush` either waits for this burst or is seen here.
  submitted_.fetch_add(n);
  if (closed_.load()) {
    submitted_.fetch_sub(n, std::memory_order_relaxed);
    return Status::NOT_READY;
  }
  burst->begun_ns = clock_();
  burst->state.store(BurstState::ENGINE, std::memory_order_release);
  // The engine holds the burst now; the session outlives the engine.
  const std::shared_ptr<SessionMemory> held = std::move(burst->keep);
  if (!ring_.push(burst)) {
    submitted_.fetch_sub(n, std::memory_order_relaxed);
    burst->release();
    return Status::NO_SPACE_AVAILABLE;
  }
  if (worker_doorbell != nullptr) worker_doorbell->ring();
  work();
  return Status::SUCCESS;
}

const char* TxQueue::unreachable(std::uintptr_t connection) const noexcept {
  const StreamPort* const stream = io_->stream();
  return stream == nullptr ? nullptr : stream->unreachable(connection);
}

std::string TxQueue::held_up_by() const {
  const StreamPort* const stream = io_->stream();
  return stream == nullptr ? std::string() : stream->held_up_by(*this);
}

bool TxQueue::wait_idle(std::int64_t timeout_ns) noexcept {
  const auto idle = [this] { return counters().held == 0; };
  const std::uint64_t begun = monotonic_ns();
  work();
  for (std::int64_t left = timeout_ns; !idle();) {
    if (timeout_ns >= 0) left = timeout_ns - static_cast<std::int64_t>(monotonic_ns() - begun);
    if (closed() || (timeout_ns >= 0 && left <= 0)) return idle();
    const Outcome outcome = work_or_wait(left);
    if (outcome == Outcome::INTERRUPTED) return false;
    if (outcome == Outcome::DONE) continue;
    if (!freed_.wait_unless([&] { return idle() || closed(); }, left)) return false;
  }
  return true;
}

bool TxQueue::wait_free(std::int64_t timeout_ns) noexcept {
  const auto free = [this] {
    if (ring_.size() >= ring_.capacity() || memory_->tx_pool->available() == 0) return false;
    return std::all_of(regions_.begin(), regions_.end(), [this](const auto* r) {
      return r->available() >= std::min<std::uint64_t>(batch_size(), r->config().num_bufs_);
    });
  };
  if (free()) return true;
  const Outcome outcome = work_or_wait(timeout_ns);
  if (outcome != Outcome::ELSEWHERE) return outcome == Outcome::DONE;
  return freed_.wait_unless([&] { return free() || closed(); }, timeout_ns);
}

DirectWork::Outcome TxQueue::work_or_wait(std::int64_t& timeout_ns) noexcept {
  if (!direct()) return Outcome::ELSEWHERE;
  // A waiting caller checks again after this time.
  constexpr std::int64_t LONGEST_NS = 100'000'000;
  // The thread that does the work may stop without a notification, so check again after this time.
  constexpr std::int64_t ELSEWHERE_NS = 1'000'000;
  const auto most = [&](std::int64_t ns) { return timeout_ns < 0 ? ns : std::min(ns, timeout_ns); };
  const Outcome outcome = direct_->work_or_wait(static_cast<std::uint64_t>(most(LONGEST_NS)));
  if (outcome == Outcome::ELSEWHERE) timeout_ns = most(ELSEWHERE_NS);
  return outcome;
}

std::uint64_t TxQueue::flush() {
  constexpr std::uint64_t LONGEST_NS = 5'000'000'000;
  const std::lock_guard lock(flush_mutex_);
  if (closed())
    throw Error(Status::NOT_READY, "queue '" + config_.common_.name_ + "': the session is closed");
  const std::uint64_t before = published_.read().dropped[DropReason::FLUSHED];
  const std::uint32_t mine = flushes_wanted_.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (worker_doorbell != nullptr) worker_doorbell->ring();
  const auto done = [&] {
    return flushes_done_.load(std::memory_order_acquire) == mine || closed();
  };
  const std::uint64_t begun = monotonic_ns();
  for (std::uint64_t waited = 0; !done(); waited = monotonic_ns() - begun) {
    if (waited >= LONGEST_NS) {
      throw Error(Status::GENERIC_FAILURE,
                  "queue '" + config_.common_.name_ + "': its worker did not answer for 5 s");
    }
    auto left = static_cast<std::int64_t>(LONGEST_NS - waited);
    if (work_or_wait(left) == Outcome::ELSEWHERE) freed_.wait_unless(done, left);
  }
  return published_.read().dropped[DropReason::FLUSHED] - before;
}

TxSnapshot TxQueue::counters() const noexcept {
  TxSnapshot snapshot = published_.read();
  // Read after the worker's group, so that every packet counted as sent is also counted as
  // submitted.
  snapshot.submitted = submitted_.load(std::memory_order_acquire);
  snapshot.held = snapshot.submitted - snapshot.sent - snapshot.dropped_total();
  return snapshot;
}

QueueLevels TxQueue::levels() const noexcept {
  QueueLevels levels;
  levels.ring = ring_.size();
  levels.ring_capacity = ring_.capacity();
  levels.bursts_free = memory_->tx_pool->available();
  levels.bursts = memory_->tx_pool->count();
  return levels;
}

void TxQueue::reset_lateness() noexcept {
  reset_lateness_.store(true, std::memory_order_release);
  if (worker_doorbell != nullptr) worker_doorbell->ring();
}

void TxQueue::mark_closed() noexcept {
  closed_.store(true);
  freed_.ring();
}

// --- Worker

Burst* TxQueue::current() noexcept {
  if (reset_lateness_.load(std::memory_order_relaxed) && reset_lateness_.exchange(false))
    lateness_.reset();
  if (current_ == nullptr && ring_.pop(current_)) position_ = 0;
  return current_;
}

void TxQueue::count_sent(std::uint32_t packets, std::uint64_t bytes) noexcept {
  position_ += packets;
  tally_.sent += packets;
  tally_.sent_bytes += bytes;
  dirty_ = dirty_ || packets > 0;
}

void TxQueue::count_dropped(DropReason reason, std::uint32_t packets) noexcept {
  position_ += packets;
  tally_.dropped[reason] += packets;
  dirty_ = dirty_ || packets > 0;
}

void TxQueue::count_completed(const TransmitCompletion& completion) noexcept {
  // Recalled packets may have been counted long ago, and may outnumber those sent now.
  tally_.sent += completion.sent;
  tally_.sent -= completion.recalled;
  tally_.sent_bytes += completion.bytes;
  tally_.sent_bytes -= completion.recalled_bytes;
  tally_.dropped[DropReason::MISSED_LAUNCH] += completion.missed;
  tally_.dropped[DropReason::SEND_ERROR] += completion.failed;
  completed_ = completed_ ||
               completion.sent + completion.missed + completion.failed + completion.released > 0;
  // Bursts are released in the order in which they were sent; the current one may still have
  // packets to send.
  for (std::uint32_t left = completion.released; left > 0;) {
    Burst* burst = in_flight_.ready() == 0 ? current_ : in_flight_.at(0);
    if (burst == nullptr) return;
    const std::uint32_t n = std::min(left, burst->kept);
    burst->kept -= n;
    left -= n;
    if (burst == current_) return;
    if (burst->kept > 0) continue;
    in_flight_.consume(1);
    burst->release();
  }
}

void TxQueue::end_pass() noexcept {
  const bool done = current_ != nullptr && position_ >= current_->num_packets();
  if (done) tally_.bursts += 1;
  if (dirty_ || done || completed_) {
    published_.publish(tally_);
    dirty_ = false;
  }
  if (done) {
    Burst* burst = std::exchange(current_, nullptr);
    if (burst->kept > 0) {
      // The ring has as many places as there are bursts.
      *in_flight_.claim() = burst;
      in_flight_.publish();
    } else {
      burst->release();
    }
  }
  if (done || std::exchange(completed_, false)) freed_.ring();
}

void TxQueue::begin_flush() noexcept {
  // Acquire, so that everything the caller of `flush` has submitted is dropped.
  flushes_begun_ = flushes_wanted_.load(std::memory_order_acquire);
  flush_left_ = ring_.size();
}

bool TxQueue::drop_flushed() noexcept {
  for (;;) {
    if (current_ == nullptr) {
      if (flush_left_ == 0) return true;
      if (!ring_.pop(current_)) return false;
      --flush_left_;
      position_ = 0;
    }
    count_dropped(DropReason::FLUSHED, current_->num_packets() - position_);
    end_pass();
  }
}

void TxQueue::end_flush() noexcept {
  flushes_done_.store(flushes_begun_, std::memory_order_release);
  freed_.ring();
}

void TxQueue::discard() noexcept {
  // A sender that has not seen that the queue is closed is about to push its burst.
  for (int i = 0; i < 100'000 && counters().held != 0; ++i) {
    if (current() != nullptr) {
      count_dropped(DropReason::FLUSHED, current_->num_packets() - position_);
      end_pass();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace daqiri
