// The application's side of a receive queue.
#include "io/rx_queue.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "daqiri/error.h"

namespace daqiri {

namespace {

BurstPool* make_pool(const RxQueueConfig& config, std::uint32_t meta_buffers, SessionMemory& memory,
                     const std::vector<memory::MemoryRegion*>& regions, RxQueue::Sources sources) {
  constexpr std::uint64_t MOST_SMALL = 1U << 24U;
  std::uint64_t small = 0;
  if (sources == RxQueue::Sources::MANY) {
    for (const auto* region : regions) small = std::max(small, region->config().num_bufs_);
  }
  return memory.rx_pools
      .emplace_back(std::make_unique<BurstPool>(
          meta_buffers, static_cast<std::uint32_t>(burst_size(config)),
          static_cast<int>(std::max<std::size_t>(regions.size(), 1)), false,
          static_cast<std::uint32_t>(std::min(small, MOST_SMALL))))
      .get();
}

}  // namespace

RxQueue::RxQueue(const InterfaceConfig& interface, const RxQueueConfig& config,
                 std::uint32_t meta_buffers, std::shared_ptr<SessionMemory> memory, Sources sources)
    : QueueBase(interface, config, std::move(memory)),
      buffers_(regions_.begin(), regions_.end()),
      on_gpu_(std::ranges::any_of(
          regions_, [](const auto* region) { return region->device_copies() != nullptr; })),
      at_once_((sources == Sources::MANY && config.timeout_us_ == 0) ||
               config.poll_mode_ == QueuePollMode::DIRECT),
      pool_(make_pool(config_, meta_buffers, *memory_, regions_, sources)),
      ring_(sources == Sources::MANY
                ? pool_->most()
                : std::clamp<std::size_t>(meta_buffers, 2, MOST_BURSTS_IN_RING)) {
  for (const auto* region : regions_) segment_capacity_.push_back(region->buf_size());
  if (regions_.size() > 1)
    segment_capacity_[0] = first_segment_capacity(config_.common_, segment_capacity_[0]);
  max_packet_size_ = std::accumulate(segment_capacity_.begin(), segment_capacity_.end(), 0U);
  for (std::size_t s = 0; s < regions_.size(); ++s) {
    if (regions_[s]->device_copies() != nullptr && !regions_[s]->host_readable())
      written_on_device_ |= 1U << s;
  }
}

void RxQueue::receive_into(std::shared_ptr<memory::BufferOwner> owner) {
  buffers_.assign(std::max<std::size_t>(buffers_.size(), 1), owner.get());
  if (segment_capacity_.empty()) segment_capacity_ = {max_packet_size_ = owner->buf_size()};
  share_owner(std::move(owner));
}

RxQueue::~RxQueue() {
  if (stage_ != nullptr) stage_->discard();
  if (spare_ != nullptr) spare_->release();
  while (oldest_ != nullptr) close_burst(*oldest_)->release();
  for (Burst* burst : aside_) burst->release();
  Burst* burst = nullptr;
  while (ring_.pop(burst)) burst->release();
}

Burst* RxQueue::hand_to_application(Burst* burst) noexcept {
  burst->waiting->fetch_sub(burst->num_packets(), std::memory_order_relaxed);
  burst->waiting = nullptr;
  delivered_.fetch_add(burst->num_packets(), std::memory_order_release);
  burst->keep = memory_;
  burst->state.store(BurstState::APPLICATION, std::memory_order_release);
  return burst;
}

void RxQueue::refuse_if_recorded(const std::string& recorder) const {
  if (recorder.empty()) return;
  throw Error(Status::NOT_READY,
              "receive queue '" + config_.common_.name_ + "' is being recorded to " + recorder +
                  "_*, and each packet is delivered once; stop that recorder first");
}

Burst* RxQueue::receive() {
  if (recorded()) refuse_if_recorded(recorder());
  Burst* burst = receive_packets();
  return burst == nullptr ? receive_frames() : move_to_regions(burst);
}

Burst* RxQueue::receive_from(std::uintptr_t connection) {
  if (recorded()) refuse_if_recorded(recorder());
  Burst* burst = take_from(connection);
  return burst == nullptr ? nullptr : move_to_regions(burst);
}

Burst* RxQueue::move_to_regions(Burst* burst) {
  const bool replaced = replace_lent(*burst);
  if (!on_gpu_) return burst;
  const std::uint32_t n = burst->num_packets();
  try {
    if (!replaced) {
      throw Error(Status::NO_FREE_PACKET_BUFFERS,
                  "too few buffers of its memory regions are free to copy them to the GPU; raise "
                  "num_bufs, or release bursts sooner");
    }
    burst->move_to_device(true);
  } catch (const Error& e) {
    burst->release();
    throw Error(e.status(), "receive queue '" + config_.common_.name_ + "': " + std::to_string(n) +
                                " packets are lost: " + e.what());
  } catch (...) {
    // Out of memory.
    burst->release();
    throw;
  }
  return burst;
}

bool RxQueue::replace_lent(Burst& burst) const noexcept {
  memory::BufferOwner* const owner = burst.owners[0];
  if (owner == nullptr || !owner->wanted_soon()) return true;
  const std::uint32_t n = burst.num_packets();
  if (regions_.empty()) return false;
  const std::size_t total = n * regions_.size();
  const std::unique_ptr<std::uint32_t[]> buffers(new (std::nothrow) std::uint32_t[total]);
  if (buffers == nullptr) return false;
  for (std::size_t s = 0; s < regions_.size(); ++s) {
    const std::uint32_t taken = regions_[s]->take(&buffers[s * n], n);
    if (taken == n) continue;
    regions_[s]->give(&buffers[s * n], taken);
    while (s-- > 0) regions_[s]->give(&buffers[s * n], n);
    return false;
  }
  for (std::size_t s = 0; s < regions_.size(); ++s) {
    for (std::uint32_t i = 0; i < n; ++i) {
      void* const to = regions_[s]->address(buffers[s * n + i]);
      std::memcpy(to, burst.pkts[s][i], burst.pkt_lens[s][i]);
      burst.pkts[s][i] = to;
      std::swap(burst.buffers[s][i], buffers[s * n + i]);
    }
    burst.owners[s] = regions_[s];
  }
  owner->give(buffers.get(), static_cast<std::uint32_t>(total));
  return true;
}

Burst* RxQueue::receive_packets() noexcept {
  if (num_aside_.load(std::memory_order_acquire) > 0) return take_from(0);
  Burst* burst = nullptr;
  bool found = ring_.pop(burst);
  if (!found && direct()) {
    work();
    found = ring_.pop(burst);
  }
  return found ? hand_to_application(burst) : nullptr;
}

Burst* RxQueue::take_from(std::uintptr_t connection) {
  const std::lock_guard lock(aside_mutex_);
  const auto it = aside(connection);
  const std::size_t before = aside_.size();
  Burst* burst = nullptr;
  if (it != aside_.end()) {
    burst = *it;
    aside_.erase(it);
  } else if (connection == 0) {
    ring_.pop(burst);
  } else {
    // Reserve the place first, so that no burst is lost if memory is exhausted.
    for (aside_.push_back(nullptr); ring_.pop(burst) && burst->connection_id != connection;
         aside_.push_back(nullptr)) {
      aside_.back() = std::exchange(burst, nullptr);
      num_aside_.store(aside_.size(), std::memory_order_release);
    }
    aside_.pop_back();
  }
  num_aside_.store(aside_.size(), std::memory_order_release);
  // Another thread may be about to wait for one of them.
  if (aside_.size() > before) ready_.ring();
  return burst == nullptr ? nullptr : hand_to_application(burst);
}

std::deque<Burst*>::iterator RxQueue::aside(std::uintptr_t connection) {
  return std::find_if(aside_.begin(), aside_.end(), [connection](const Burst* burst) {
    return connection == 0 || burst->connection_id == connection;
  });
}

Burst* RxQueue::receive_unrecorded(std::uintptr_t connection) {
  // The lock is held until the burst is taken: a recorder that attached in between would neither
  // record the burst nor count it as lost.
  std::unique_lock lock(recorder_mutex_);
  refuse_if_recorded(recorder_);
  Burst* burst = connection == 0 ? receive_packets() : take_from(connection);
  if (burst == nullptr) return connection == 0 ? receive_frames() : nullptr;
  // `move_to_regions` may wait for a GPU.
  lock.unlock();
  return move_to_regions(burst);
}

bool RxQueue::wait(std::int64_t timeout_ns, std::uintptr_t connection) noexcept {
  const auto ready = [&] {
    if (ring_.size() > 0 || closed() || (stage_ != nullptr && stage_->ready())) return true;
    const std::lock_guard lock(aside_mutex_);
    return aside(connection) != aside_.end();
  };
  if (direct() && !ready()) {
    constexpr std::int64_t LONGEST_NS = 100'000'000;
    // The thread that does the work may stop without a notification, so check again after this
    // time.
    constexpr std::int64_t ELSEWHERE_NS = 1'000'000;
    const auto most = [&](std::int64_t ns) {
      return timeout_ns < 0 ? ns : std::min(ns, timeout_ns);
    };
    const auto outcome = direct_->work_or_wait(static_cast<std::uint64_t>(most(LONGEST_NS)));
    if (outcome != DirectWork::Outcome::ELSEWHERE) return outcome == DirectWork::Outcome::DONE;
    return ready_.wait_unless(ready, most(ELSEWHERE_NS));
  }
  return ready_.wait_unless(ready, timeout_ns);
}

void RxQueue::set_poller(Doorbell& poller) {
  poller_doorbell = &poller;
  for (memory::BufferOwner* owner : buffers_) owner->add_poller(poller);
}

void RxQueue::request_flush() {
  if (closed())
    throw Error(Status::NOT_READY, "queue '" + config_.common_.name_ + "': the session is closed");
  const std::uint64_t mine = discard_requests_.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (poller_doorbell != nullptr) poller_doorbell->ring();
  for (int i = 0; i < 50'000; ++i) {
    work();
    if (closed() || discards_done_.load(std::memory_order_acquire) >= mine) return;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  throw Error(Status::GENERIC_FAILURE,
              "queue '" + config_.common_.name_ + "': its poller did not answer for 5 s");
}

void RxQueue::set_drop_all(bool on) {
  const bool before = filter_wanted_.exchange(on, std::memory_order_acq_rel);
  // Packets that the source still holds arrived while all packets were dropped.
  if (on || (before && !closed())) request_flush();
}

void RxQueue::attach_recorder(const std::string& name) {
  if (direct()) {
    throw Error(Status::NOT_SUPPORTED,
                "receive queue '" + config_.common_.name_ +
                    "' has poll_mode: direct, and a recorder does not poll; set it to indirect");
  }
  const std::lock_guard lock(recorder_mutex_);
  if (!recorder_.empty()) {
    throw Error(Status::NOT_READY, "queue '" + config_.common_.name_ + "' is being recorded by '" +
                                       recorder_ + "'; stop that recorder first");
  }
  recorder_ = name;
  recorded_.store(true, std::memory_order_release);
}

void RxQueue::detach_recorder() noexcept {
  const std::lock_guard lock(recorder_mutex_);
  recorder_.clear();
  recorded_.store(false, std::memory_order_release);
}

std::string RxQueue::recorder() const {
  const std::lock_guard lock(recorder_mutex_);
  return recorder_;
}

void RxQueue::mark_closed() noexcept {
  closed_.store(true, std::memory_order_release);
  ready_.ring();
}

QueueLevels RxQueue::levels() const noexcept {
  QueueLevels levels;
  levels.ring = ring_.size() + num_aside_.load(std::memory_order_relaxed);
  levels.ring_capacity = ring_.capacity();
  levels.bursts_free = pool_->available();
  levels.bursts = pool_->count();
  return levels;
}

RxSnapshot RxQueue::counters() const noexcept {
  // Read before the poller's group, so that every packet counted as delivered is also counted as
  // accepted.
  const std::uint64_t delivered = delivered_.load(std::memory_order_acquire);
  RxSnapshot snapshot = published_.read();
  snapshot.held -= snapshot.delivered + delivered;
  snapshot.delivered += delivered;
  return snapshot;
}

}  // namespace daqiri
