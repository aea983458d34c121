#include "io/tx_queue.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "io/io_engine.h"
#include "timing/clock.h"

namespace daqiri {

namespace {
constexpr std::size_t MAX_WAITING = 2048;
}

TxQueue::TxQueue(const InterfaceConfig& interface, const TxQueueConfig& config,
                 std::uint32_t meta_buffers, std::shared_ptr<SessionMemory> memory)
    : config_(config),
      port_id_(interface.port_id_),
      interface_(interface.name_),
      memory_(std::move(memory)),
      ring_(std::clamp<std::size_t>(meta_buffers, 2, MAX_WAITING)) {
  for (const std::string& name : config_.mrs_) {
    regions_.push_back(memory_->regions.at(name).get());
    max_packet_size_ += regions_.back()->buf_size();
  }
}

TxQueue::~TxQueue() {
  if (current_ != nullptr) current_->release();
  Burst* burst = nullptr;
  while (ring_.pop(burst)) burst->release();
}

// --- Application

Status TxQueue::allocate(std::uint32_t num_packets, Burst** burst) noexcept {
  *burst = nullptr;
  if (num_packets == 0 || num_packets > batch_size()) return Status::INVALID_PARAMETER;
  if (closed()) return Status::NOT_READY;
  Burst* taken = memory_->tx_pool->take();
  if (taken == nullptr) return Status::NO_FREE_BURST_BUFFERS;
  taken->keep = memory_;
  taken->state.store(BurstState::APPLICATION, std::memory_order_release);
  const Status status = fill(*taken, num_packets);
  if (status != Status::SUCCESS) {
    taken->release();
    return status;
  }
  *burst = taken;
  return Status::SUCCESS;
}

Status TxQueue::fill(Burst& burst, std::uint32_t num_packets) noexcept {
  if (num_packets == 0 || num_packets > batch_size() || num_packets > burst.capacity ||
      burst.owned != 0) {
    return Status::INVALID_PARAMETER;
  }
  const int segments = num_segments();
  for (int s = 0; s < segments; ++s) {
    const std::uint32_t taken = region(s).take(burst.buffers[s], num_packets);
    if (taken == num_packets) continue;
    region(s).give(burst.buffers[s], taken);
    for (int t = 0; t < s; ++t) {
      region(t).give(burst.buffers[t], num_packets);
      burst.regions[t] = nullptr;
    }
    return Status::NO_FREE_PACKET_BUFFERS;
  }
  for (int s = 0; s < segments; ++s) {
    burst.regions[s] = &region(s);
    for (std::uint32_t i = 0; i < num_packets; ++i)
      burst.pkts[s][i] = region(s).address(burst.buffers[s][i]);
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
  // Before the push, so that no snapshot sees a packet sent that was not submitted; and before the
  // look at closed_, so that flush() either waits for this burst or is seen here.
  submitted_.fetch_add(n);
  if (closed_.load()) {
    submitted_.fetch_sub(n, std::memory_order_relaxed);
    return Status::NOT_READY;
  }
  burst->begun_ns = realtime_ns();
  burst->state.store(BurstState::ENGINE, std::memory_order_release);
  // The engine holds it now; the session outlives the engine.
  const std::shared_ptr<SessionMemory> held = std::move(burst->keep);
  if (!ring_.push(burst)) {
    submitted_.fetch_sub(n, std::memory_order_relaxed);
    burst->release();
    return Status::NO_SPACE_AVAILABLE;
  }
  if (worker_doorbell != nullptr) worker_doorbell->ring();
  return Status::SUCCESS;
}

bool TxQueue::wait_idle(std::int64_t timeout_ns) noexcept {
  const std::uint64_t end =
      monotonic_ns() + static_cast<std::uint64_t>(std::max<std::int64_t>(timeout_ns, 0));
  while (counters().held != 0) {
    const std::uint64_t now = monotonic_ns();
    if (timeout_ns >= 0 && now >= end) return false;
    room_.prepare();
    if (counters().held == 0) {
      room_.cancel();
      break;
    }
    if (closed()) {
      room_.cancel();
      return false;
    }
    if (!room_.wait(timeout_ns < 0 ? -1 : static_cast<std::int64_t>(end - now))) return false;
  }
  return true;
}

bool TxQueue::wait_room(std::int64_t timeout_ns) noexcept {
  const auto room = [this] {
    if (ring_.size() >= ring_.capacity() || memory_->tx_pool->available() == 0) return false;
    return std::all_of(regions_.begin(), regions_.end(), [this](const auto* r) {
      return r->available() >= std::min<std::uint64_t>(batch_size(), r->config().num_bufs_);
    });
  };
  if (room()) return true;
  room_.prepare();
  if (room() || closed()) {
    room_.cancel();
    return true;
  }
  return room_.wait(timeout_ns);
}

TxSnapshot TxQueue::counters() const noexcept {
  TxSnapshot s;
  const auto values = published_.read();
  s.sent = values[0];
  s.sent_bytes = values[1];
  s.bursts = values[2];
  s.late = values[3];
  std::copy(values.begin() + 4, values.end(), s.dropped.begin());
  // After the worker's group: whatever was sent is then among the submitted.
  s.submitted = submitted_.load(std::memory_order_acquire);
  s.held = s.submitted - s.sent - s.dropped_total();
  return s;
}

QueueLevels TxQueue::levels() const noexcept {
  return {ring_.size(), ring_.capacity(), memory_->tx_pool->available(), memory_->tx_pool->count()};
}

void TxQueue::reset_lateness() noexcept {
  reset_lateness_.store(true, std::memory_order_release);
  if (worker_doorbell != nullptr) worker_doorbell->ring();
}

void TxQueue::mark_closed() noexcept {
  closed_.store(true);
  room_.ring();
}

// --- Worker

Burst* TxQueue::current() noexcept {
  if (reset_lateness_.load(std::memory_order_relaxed) &&
      reset_lateness_.exchange(false, std::memory_order_acq_rel)) {
    lateness_.reset();
  }
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
  tally_.dropped[static_cast<std::size_t>(reason)] += packets;
  dirty_ = dirty_ || packets > 0;
}

void TxQueue::count_launched(const LaunchResult& result) noexcept {
  tally_.sent += result.left - result.recalled;
  tally_.sent_bytes += result.left_bytes - result.recalled_bytes;
  tally_.dropped[static_cast<std::size_t>(DropReason::MISSED_LAUNCH)] += result.missed;
  launched_ = launched_ || result.left + result.missed > 0;
}

void TxQueue::end_pass() noexcept {
  const bool done = current_ != nullptr && position_ >= current_->num_packets();
  if (done) ++tally_.bursts;
  if (dirty_ || done || launched_) {
    std::array<std::uint64_t, TALLY_SIZE> values{tally_.sent, tally_.sent_bytes, tally_.bursts,
                                                 tally_.late};
    std::copy(tally_.dropped.begin(), tally_.dropped.end(), values.begin() + 4);
    published_.publish(values);
    dirty_ = false;
  }
  if (done) std::exchange(current_, nullptr)->release();
  if (done || std::exchange(launched_, false)) room_.ring();
}

void TxQueue::flush() noexcept {
  // A sender that was not told that the queue is closed is about to push its burst.
  constexpr int LIMIT = 100'000;
  for (int i = 0; i < LIMIT && counters().held != 0; ++i) {
    if (current() == nullptr) {
      std::this_thread::yield();
      continue;
    }
    count_dropped(DropReason::FLUSHED, current_->num_packets() - position_);
    end_pass();
  }
}

}  // namespace daqiri
