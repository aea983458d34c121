#include <algorithm>
#include <deque>
#include <mutex>
#include <new>
#include <string>

#include "burst/burst.h"
#include "daqiri/error.h"

namespace daqiri {

namespace {

/// Burst headers of the whole process. They are reused, never destroyed: a stale handle stays
/// readable.
class HeaderSlab {
 public:
  static HeaderSlab& instance() {
    static auto* slab =
        new HeaderSlab;  // NOLINT(cppcoreguidelines-owning-memory): lives as long as the process
    return *slab;
  }
  Burst* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return &headers_.emplace_back();
    Burst* header = free_.back();
    free_.pop_back();
    return header;
  }
  void give(Burst* header) {
    const std::lock_guard lock(mutex_);
    free_.push_back(header);
  }

 private:
  std::mutex mutex_;
  std::deque<Burst> headers_;
  std::vector<Burst*> free_;
};

constexpr std::size_t align_up(std::size_t bytes) { return (bytes + 63U) & ~std::size_t{63}; }

}  // namespace

BurstPool::BurstPool(std::uint32_t count, std::uint32_t capacity, int num_segments, bool transmit,
                     std::uint32_t small)
    : count_(count),
      capacity_(capacity),
      num_segments_(num_segments),
      transmit_(transmit),
      small_limit_(small),
      free_(count),
      free_small_(small) {
  // They are made when they are needed.
  for (std::uint32_t number = 0; free_small_.take(&number, 1) > 0;) {
  }
  try {
    make(count, capacity, false);
  } catch (const std::bad_alloc&) {
    throw Error(Status::NO_FREE_BURST_BUFFERS,
                "cannot allocate " + std::to_string(count) + " bursts of " +
                    std::to_string(capacity) + " packets (" +
                    std::to_string(bytes(count, capacity, num_segments)) + " bytes); lower " +
                    (transmit ? "tx_meta_buffers" : "rx_meta_buffers") + " or batch_size");
  }
}

std::uint64_t BurstPool::bytes(std::uint32_t count, std::uint32_t capacity,
                               int num_segments) noexcept {
  const std::size_t n = capacity;
  const std::size_t per_segment =
      align_up(n * sizeof(void*)) + 2 * align_up(n * sizeof(std::uint32_t));
  const std::size_t per_burst = per_segment * static_cast<std::size_t>(num_segments) +
                                align_up(n * sizeof(FlowId)) + align_up(n * sizeof(std::uint64_t));
  return per_burst * count + 64;
}

void BurstPool::make(std::uint32_t count, std::uint32_t capacity, bool small) {
  const std::size_t n = capacity;
  bursts_.reserve(bursts_.size() + count);
  // Not value-initialised: pages of bursts that are never used are never touched.
  arrays_.push_back(
      std::make_unique_for_overwrite<std::byte[]>(bytes(count, capacity, num_segments_)));
  auto* next = reinterpret_cast<std::byte*>(
      align_up(reinterpret_cast<std::uintptr_t>(arrays_.back().get())));
  const auto carve = [&next](std::size_t bytes) {
    std::byte* at = next;
    next += align_up(bytes);
    return at;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    Burst* burst = HeaderSlab::instance().take();
    for (int s = 0; s < num_segments_; ++s) {
      burst->pkts[s] = reinterpret_cast<void**>(carve(n * sizeof(void*)));
      burst->pkt_lens[s] = reinterpret_cast<std::uint32_t*>(carve(n * sizeof(std::uint32_t)));
      burst->buffers[s] = reinterpret_cast<std::uint32_t*>(carve(n * sizeof(std::uint32_t)));
    }
    burst->flow_ids = reinterpret_cast<FlowId*>(carve(n * sizeof(FlowId)));
    burst->timestamps = reinterpret_cast<std::uint64_t*>(carve(n * sizeof(std::uint64_t)));
    burst->capacity = capacity;
    burst->transmit = transmit_;
    burst->small = small;
    burst->home = this;
    burst->place = small ? small_made_ + i : i;
    bursts_.push_back(burst);
    if (small) free_small_.give(&burst->place, 1);
  }
}

bool BurstPool::make_small() noexcept {
  constexpr std::uint32_t AT_ONCE = 64;
  const std::uint32_t n = std::min(AT_ONCE, small_limit_ - small_made_);
  if (n == 0) return false;
  try {
    make(n, std::min(SMALL, capacity_), true);
  } catch (const std::bad_alloc&) {
    return false;
  }
  small_made_ += n;
  return true;
}

BurstPool::~BurstPool() {
  for (Burst* burst : bursts_) {
    burst->state.store(BurstState::FREE, std::memory_order_release);
    burst->hdr = {};
    burst->owned = 0;
    burst->home = nullptr;
    for (int s = 0; s < MAX_NUM_SEGS; ++s) {
      burst->pkts[s] = nullptr;
      burst->pkt_lens[s] = nullptr;
      burst->buffers[s] = nullptr;
      burst->owners[s] = nullptr;
    }
    burst->flow_ids = nullptr;
    burst->timestamps = nullptr;
    HeaderSlab::instance().give(burst);
  }
}

Burst* BurstPool::take() noexcept {
  std::uint32_t number = 0;
  const bool small = free_.take(&number, 1) == 0;
  if (small && free_small_.take(&number, 1) == 0 &&
      (!make_small() || free_small_.take(&number, 1) == 0))
    return nullptr;
  Burst* burst = bursts_[small ? count_ + number : number];
  burst->hdr.hdr = {};
  burst->hdr.hdr.num_segs = num_segments_;
  burst->event = nullptr;
  burst->connection_id = 0;
  burst->begun_ns = 0;
  burst->owned = 0;
  burst->source_packets = 0;
  burst->waiting = nullptr;
  burst->kept = 0;
  burst->stream = {};
  burst->ends = {};
  burst->holders.store(1, std::memory_order_relaxed);
  for (auto& owner : burst->owners) owner = nullptr;
  burst->state.store(BurstState::ENGINE, std::memory_order_release);
  return burst;
}

void BurstPool::give(Burst* burst) noexcept {
  burst->state.store(BurstState::FREE, std::memory_order_release);
  burst->hdr.hdr.num_pkts = 0;
  (burst->small ? free_small_ : free_).give(&burst->place, 1);
}

}  // namespace daqiri
