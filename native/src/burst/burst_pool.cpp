#include <deque>
#include <mutex>

#include "burst/burst.h"

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

BurstPool::BurstPool(std::uint32_t count, std::uint32_t capacity, int num_segments, bool transmit)
    : capacity_(capacity), num_segments_(num_segments), free_(count) {
  const std::size_t n = capacity;
  const std::size_t per_segment =
      align_up(n * sizeof(void*)) + 2 * align_up(n * sizeof(std::uint32_t));
  const std::size_t per_burst = per_segment * static_cast<std::size_t>(num_segments) +
                                align_up(n * sizeof(FlowId)) + align_up(n * sizeof(std::uint64_t));
  // Not value-initialised: pages of bursts that are never used are never touched.
  arrays_ = std::make_unique_for_overwrite<std::byte[]>(per_burst * count + 64);
  auto* next =
      reinterpret_cast<std::byte*>(align_up(reinterpret_cast<std::uintptr_t>(arrays_.get())));
  const auto carve = [&next](std::size_t bytes) {
    std::byte* at = next;
    next += align_up(bytes);
    return at;
  };
  bursts_.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    Burst* burst = HeaderSlab::instance().take();
    for (int s = 0; s < num_segments; ++s) {
      burst->pkts[s] = reinterpret_cast<void**>(carve(n * sizeof(void*)));
      burst->pkt_lens[s] = reinterpret_cast<std::uint32_t*>(carve(n * sizeof(std::uint32_t)));
      burst->buffers[s] = reinterpret_cast<std::uint32_t*>(carve(n * sizeof(std::uint32_t)));
    }
    burst->flow_ids = reinterpret_cast<FlowId*>(carve(n * sizeof(FlowId)));
    burst->timestamps = reinterpret_cast<std::uint64_t*>(carve(n * sizeof(std::uint64_t)));
    burst->capacity = capacity;
    burst->transmit = transmit;
    burst->home = this;
    bursts_.push_back(burst);
    free_.push(burst);
  }
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
      burst->regions[s] = nullptr;
    }
    burst->flow_ids = nullptr;
    burst->timestamps = nullptr;
    HeaderSlab::instance().give(burst);
  }
}

Burst* BurstPool::take() noexcept {
  Burst* burst = nullptr;
  if (!free_.pop(burst)) return nullptr;
  burst->hdr.hdr = {};
  burst->hdr.hdr.num_segs = num_segments_;
  burst->event = nullptr;
  burst->connection_id = 0;
  burst->begun_ns = 0;
  burst->stream = {};
  burst->owned = 0;
  burst->holders.store(1, std::memory_order_relaxed);
  for (auto& region : burst->regions) region = nullptr;
  burst->state.store(BurstState::ENGINE, std::memory_order_release);
  return burst;
}

void BurstPool::give(Burst* burst) noexcept {
  burst->state.store(BurstState::FREE, std::memory_order_release);
  burst->hdr.hdr.num_pkts = 0;
  free_.push(burst);
}

}  // namespace daqiri
