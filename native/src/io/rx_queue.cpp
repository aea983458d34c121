#include "io/rx_queue.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "daqiri/error.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr std::size_t MAX_RING = 2048;

}  // namespace

RxQueue::RxQueue(const InterfaceConfig& interface, const RxQueueConfig& config,
                 std::uint32_t meta_buffers, std::shared_ptr<SessionMemory> memory)
    : config_(config),
      port_id_(interface.port_id_),
      memory_(std::move(memory)),
      ring_capacity_(static_cast<std::uint32_t>(
          std::bit_ceil(std::clamp<std::size_t>(meta_buffers, 2, MAX_RING)))) {
  for (const std::string& name : config_.mrs_) {
    memory::MemoryRegion* region = memory_->regions.at(name).get();
    std::uint32_t capacity = region->buf_size();
    const bool split = regions_.empty() && config_.mrs_.size() > 1 && config_.split_boundary_ > 0;
    if (split) capacity = std::min(capacity, config_.split_boundary_);
    regions_.push_back(region);
    segment_capacity_.push_back(capacity);
    max_packet_size_ += capacity;
  }
  memory_->rx_pools.push_back(std::make_unique<BurstPool>(
      meta_buffers, static_cast<std::uint32_t>(config_.batch_size_), num_segments(), false));
  pool_ = memory_->rx_pools.back().get();
  add_channel(0);
}

RxQueue::~RxQueue() {
  if (spare_ != nullptr) spare_->release();
  const std::size_t n = num_channels_.load();
  for (std::size_t i = 0; i < n; ++i) {
    const std::unique_ptr<Channel> channel(channels_[i].load());
    if (channel->open != nullptr) channel->open->release();
    Burst* burst = nullptr;
    while (channel->ring.pop(burst)) burst->release();
  }
}

Channel* RxQueue::add_channel(std::uintptr_t connection_id, const BurstEnds& ends) {
  const std::size_t n = num_channels_.load(std::memory_order_relaxed);
  if (n == MAX_CHANNELS) return nullptr;
  auto channel = std::make_unique<Channel>(ring_capacity_, connection_id, ends);
  Channel* added = channel.get();
  channels_[n].store(channel.release(), std::memory_order_release);
  num_channels_.store(n + 1, std::memory_order_release);
  return added;
}

// --- Application

Burst* RxQueue::take_from(Channel& channel) noexcept {
  Burst* burst = nullptr;
  if (!channel.ring.pop(burst)) return nullptr;
  delivered_.fetch_add(burst->num_packets(), std::memory_order_release);
  burst->keep = memory_;
  burst->state.store(BurstState::APPLICATION, std::memory_order_release);
  return burst;
}

Burst* RxQueue::receive() noexcept {
  const std::size_t n = num_channels_.load(std::memory_order_acquire);
  if (n == 1) return take_from(main_channel());
  const std::size_t start = next_channel_.load(std::memory_order_relaxed);
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t i = (start + k) % n;
    Burst* burst = take_from(*channels_[i].load(std::memory_order_acquire));
    if (burst != nullptr) {
      next_channel_.store(i + 1, std::memory_order_relaxed);
      return burst;
    }
  }
  return nullptr;
}

Burst* RxQueue::receive_from(std::uintptr_t connection_id) {
  const std::lock_guard lock(reassigning_);
  const std::size_t n = num_channels_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < n; ++i) {
    Channel& channel = *channels_[i].load(std::memory_order_acquire);
    if (channel.connection_id.load(std::memory_order_acquire) == connection_id)
      return take_from(channel);
  }
  throw Error(Status::INVALID_PARAMETER,
              "queue '" + config_.name_ + "' has no connection " + std::to_string(connection_id) +
                  "; a peer gets its id with its first packet, and loses it when " +
                  std::to_string(MAX_CHANNELS - 1) + " others were heard since its latest");
}

bool RxQueue::has_connection(std::uintptr_t connection_id) const noexcept {
  const std::size_t n = num_channels_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < n; ++i) {
    const Channel& channel = *channels_[i].load(std::memory_order_acquire);
    if (channel.connection_id.load(std::memory_order_acquire) == connection_id) return true;
  }
  return false;
}

bool RxQueue::anything_ready() const noexcept {
  const std::size_t n = num_channels_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < n; ++i) {
    if (channels_[i].load(std::memory_order_acquire)->ring.size() > 0) return true;
  }
  return false;
}

bool RxQueue::wait(std::int64_t timeout_ns) noexcept {
  doorbell_.prepare();
  if (anything_ready() || closed()) {
    doorbell_.cancel();
    return true;
  }
  return doorbell_.wait(timeout_ns);
}

void RxQueue::await_flush() {
  if (closed())
    throw Error(Status::NOT_READY, "queue '" + config_.name_ + "': the session is closed");
  const std::uint64_t mine = flush_requests_.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (poller_doorbell != nullptr) poller_doorbell->ring();
  constexpr int LIMIT = 50'000;
  for (int i = 0; i < LIMIT && flushes_done_.load(std::memory_order_acquire) < mine; ++i) {
    if (closed()) return;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (flushes_done_.load(std::memory_order_acquire) < mine) {
    throw Error(Status::GENERIC_FAILURE,
                "queue '" + config_.name_ + "': its poller did not answer for 5 s");
  }
}

void RxQueue::request_flush() {
  flush_before_ns_.store(realtime_ns(), std::memory_order_relaxed);
  await_flush();
}

void RxQueue::set_drop_all(bool on) {
  const std::uint64_t before =
      filter_before_ns_.exchange(on ? FILTER_ALL : realtime_ns(), std::memory_order_relaxed);
  // What the source of the packets still holds arrived while all was dropped.
  if (on || (before == FILTER_ALL && !closed())) await_flush();
}

void RxQueue::attach_recorder(const std::string& name) {
  const std::lock_guard lock(recorder_mutex_);
  if (!recorder_.empty()) {
    throw Error(Status::NOT_READY, "queue '" + config_.name_ + "' is being recorded by '" +
                                       recorder_ + "'; stop that recorder first");
  }
  recorder_ = name;
}

void RxQueue::detach_recorder() noexcept {
  const std::lock_guard lock(recorder_mutex_);
  recorder_.clear();
}

std::string RxQueue::recorder() const {
  const std::lock_guard lock(recorder_mutex_);
  return recorder_;
}

void RxQueue::mark_closed() noexcept {
  closed_.store(true, std::memory_order_release);
  doorbell_.ring();
}

QueueLevels RxQueue::levels() const noexcept {
  QueueLevels levels{0, 0, pool_->available(), pool_->count()};
  const std::size_t n = num_channels_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < n; ++i) {
    const Channel& channel = *channels_[i].load(std::memory_order_acquire);
    levels.ring += channel.ring.size();
    levels.ring_capacity += channel.ring.capacity();
  }
  return levels;
}

RxSnapshot RxQueue::counters() const noexcept {
  RxSnapshot s;
  // Before the poller's group: whatever counts as delivered is then among the enqueued.
  s.delivered = delivered_.load(std::memory_order_acquire);
  const auto values = published_.read();
  s.received = values[0];
  s.received_bytes = values[1];
  s.held = values[2] + values[3] - s.delivered;
  s.bursts = values[4];
  s.truncated = values[5];
  s.ring_high_water = values[6];
  std::copy(values.begin() + 7, values.end(), s.dropped.begin());
  return s;
}

}  // namespace daqiri
