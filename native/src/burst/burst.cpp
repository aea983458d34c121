#include "burst/burst.h"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "daqiri/error.h"

namespace daqiri {

void Burst::free_segment(int segment) noexcept {
  std::uint32_t* numbers = buffers[segment];
  memory::BufferOwner* owner = owners[segment];
  if (numbers == nullptr || owner == nullptr || owned == 0) return;
  // Usually nothing was freed before, and the whole array is returned as one chain.
  const auto* end = std::remove(numbers, numbers + owned, NO_BUFFER);
  owner->give(numbers, static_cast<std::uint32_t>(end - numbers));
  std::fill_n(numbers, owned, NO_BUFFER);
  std::fill_n(pkts[segment], owned, nullptr);
}

void Burst::free_packet_segment(int segment, std::uint32_t packet) noexcept {
  if (packet >= owned || owners[segment] == nullptr) return;
  std::uint32_t& number = buffers[segment][packet];
  if (number == NO_BUFFER) return;
  owners[segment]->give(&number, 1);
  number = NO_BUFFER;
  pkts[segment][packet] = nullptr;
}

void Burst::free_packet(std::uint32_t packet) noexcept {
  for (int s = 0; s < MAX_NUM_SEGS; ++s) free_packet_segment(s, packet);
}

int Burst::unreadable_segment() const noexcept {
  for (int s = 0; s < MAX_NUM_SEGS; ++s) {
    if (!host_readable(s)) return s;
  }
  return -1;
}

void Burst::move_to_device(bool copy) {
  for (int s = 0; s < hdr.hdr.num_segs; ++s) {
    const memory::BufferOwner* const owner = owners[s];
    memory::DeviceCopies* const copies = owner == nullptr ? nullptr : owner->device_copies();
    if (copies == nullptr) continue;
    if (is_on_device(s)) {
      // Nothing to copy, but an event.
      if (copy) event = copies->to_device({pkts[s], pkt_lens[s], 0}, event);
      continue;
    }
    if (copy) {
      event = copies->to_device({pkts[s], pkt_lens[s], owned}, event);
    } else {
      // Otherwise pending copies of an earlier burst would overwrite what is written now.
      copies->finish();
    }
    for (std::uint32_t i = 0; i < owned; ++i) pkts[s][i] = copies->on_device(pkts[s][i]);
    on_device |= 1U << static_cast<unsigned>(s);
  }
}

void Burst::move_to_host() {
  if (on_device == 0) return;
  copy_to_host(memory::DeviceCopies::Behind::COPIES);
  for (int s = 0; s < hdr.hdr.num_segs; ++s) {
    for (std::uint32_t i = 0; i < owned; ++i) pkts[s][i] = on_host(s, i);
  }
  on_device = 0;
}

void Burst::copy_to_host(memory::DeviceCopies::Behind behind, std::uint32_t first,
                         std::uint32_t count) const {
  for (int s = 0; s < hdr.hdr.num_segs; ++s) {
    if (is_on_device(s))
      owners[s]->device_copies()->to_host({pkts[s] + first, pkt_lens[s] + first, count}, behind);
  }
}

void require_host_readable(const Burst& burst, std::string_view action) {
  const int segment = burst.unreadable_segment();
  if (segment < 0 || segment >= MAX_NUM_SEGS) return;
  std::string text = "segment " + std::to_string(segment) + " of the packets is in '" +
                     burst.owners[segment]->name() + "', which the CPU cannot read, and cannot be ";
  text.append(action).append(
      "; copy the packets to the host first, or use a memory region of kind "
      "'host', 'huge' or 'host_pinned'");
  throw Error(Status::NOT_SUPPORTED, text);
}

void Burst::release() noexcept {
  // The only holder's count cannot be increased by others, so the common case needs only a load.
  if (!exclusive() && holders.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  // The last burst of a closed session may own pools and regions: keep them until the end of this
  // function.
  const std::shared_ptr<SessionMemory> held = std::move(keep);
  for (int s = 0; s < MAX_NUM_SEGS; ++s) free_segment(s);
  home->give(this);
}

// --- BurstPool

namespace {

/// Burst headers of the process. They are reused and never destroyed, so that a stale handle stays
/// readable.
struct HeaderSlab {
  std::mutex mutex;
  std::deque<Burst> headers;
  std::vector<Burst*> free;
};

HeaderSlab& slab() {
  static auto* instance = new HeaderSlab;  // NOLINT(cppcoreguidelines-owning-memory)
  // Locked during fork(2), so that no other thread is changing the slab in the child.
  [[maybe_unused]] static const int registered =
      pthread_atfork([] { instance->mutex.lock(); }, [] { instance->mutex.unlock(); },
                     [] { instance->mutex.unlock(); });
  return *instance;
}

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
  // Small bursts are made on demand.
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

std::byte* BurstPool::allocate(std::uint32_t count, std::uint32_t capacity) {
  // Not initialized, so that pages of unused bursts are never touched.
  arrays_.push_back(
      std::make_unique_for_overwrite<std::byte[]>(bytes(count, capacity, num_segments_)));
  return reinterpret_cast<std::byte*>(
      align_up(reinterpret_cast<std::uintptr_t>(arrays_.back().get())));
}

std::byte* BurstPool::attach(Burst& burst, std::byte* arrays,
                             std::uint32_t capacity) const noexcept {
  const auto carve = [&]<typename T>(T*& array) {
    array = reinterpret_cast<T*>(arrays);
    arrays += align_up(capacity * sizeof(T));
  };
  for (int s = 0; s < num_segments_; ++s) {
    carve(burst.pkts[s]);
    carve(burst.pkt_lens[s]);
    carve(burst.buffers[s]);
  }
  carve(burst.flow_ids);
  carve(burst.timestamps);
  burst.capacity = capacity;
  return arrays;
}

bool BurstPool::enlarge(Burst& burst, std::uint32_t n) noexcept {
  try {
    const std::lock_guard lock(slab().mutex);
    // At least doubled, because the previous arrays are kept until the pool is destroyed.
    const std::uint32_t capacity = std::max(n, 2 * burst.capacity);
    attach(burst, allocate(1, capacity), capacity);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void BurstPool::make(std::uint32_t count, std::uint32_t capacity, bool small) {
  bursts_.reserve(bursts_.size() + count);
  const std::lock_guard lock(slab().mutex);
  std::byte* arrays = allocate(count, capacity);
  while (slab().free.size() < count) slab().free.push_back(&slab().headers.emplace_back());
  for (std::uint32_t i = 0; i < count; ++i) {
    Burst* burst = slab().free.back();
    slab().free.pop_back();
    arrays = attach(*burst, arrays, capacity);
    burst->transmit = transmit_;
    burst->small = small;
    burst->home = this;
    burst->place = static_cast<std::uint32_t>(bursts_.size()) - (small ? count_ : 0);
    bursts_.push_back(burst);
    if (small) free_small_.give(&burst->place, 1);
  }
}

bool BurstPool::make_small() noexcept {
  constexpr std::uint32_t AT_ONCE = 64;
  const auto made = static_cast<std::uint32_t>(bursts_.size()) - count_;
  const std::uint32_t n = std::min(AT_ONCE, small_limit_ - made);
  if (n == 0) return false;
  try {
    make(n, std::min(SMALL, capacity_), true);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

BurstPool::~BurstPool() {
  const std::lock_guard lock(slab().mutex);
  for (Burst* burst : bursts_) {
    burst->state.store(BurstState::FREE, std::memory_order_release);
    static_cast<BurstParams&>(*burst) = {};
    static_cast<BurstContents&>(*burst) = {};
    std::fill_n(burst->buffers, MAX_NUM_SEGS, nullptr);
    burst->home = nullptr;
  }
  slab().free.insert(slab().free.end(), bursts_.begin(), bursts_.end());
}

Burst* BurstPool::take() noexcept {
  std::uint32_t number = 0;
  const bool small = free_.take(&number, 1) == 0;
  if (small && free_small_.take(&number, 1) == 0 &&
      (!make_small() || free_small_.take(&number, 1) == 0))
    return nullptr;
  Burst* burst = bursts_[small ? count_ + number : number];
  burst->hdr = {};
  burst->hdr.hdr.num_segs = num_segments_;
  burst->transport_hdr = {};
  burst->pkt_extra_info = nullptr;
  burst->event = nullptr;
  burst->connection_id = 0;
  static_cast<BurstContents&>(*burst) = {};
  burst->holders.store(1, std::memory_order_relaxed);
  burst->state.store(BurstState::ENGINE, std::memory_order_release);
  return burst;
}

void BurstPool::give(Burst* burst) noexcept {
  burst->state.store(BurstState::FREE, std::memory_order_release);
  burst->hdr.hdr.num_pkts = 0;
  burst->custom_pkt_data.reset();
  (burst->small ? free_small_ : free_).give(&burst->place, 1);
}

}  // namespace daqiri
