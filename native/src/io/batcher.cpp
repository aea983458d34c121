#include "io/batcher.h"

#include <algorithm>
#include <utility>

#include "timing/clock.h"

namespace daqiri {

Batcher::~Batcher() {
  if (spare_ != nullptr) spare_->release();
  while (oldest_ != nullptr) close(*oldest_)->release();
}

void Batcher::give_back(const RxBatch& batch, std::uint32_t first) const noexcept {
  for (std::size_t s = 0; s < shape_.regions.size(); ++s)
    owner_of(batch, s)->give(batch.segments[s].buffers + first, batch.count - first);
}

Burst* Batcher::open(RxSource& source, const RxBatch& batch, std::uint32_t first) noexcept {
  Burst* burst = spare_ != nullptr ? std::exchange(spare_, nullptr) : pool_.take();
  if (burst == nullptr) return nullptr;
  burst->hdr.hdr.port_id = shape_.port;
  burst->hdr.hdr.q_id = shape_.queue;
  burst->hdr.hdr.max_pkt = burst->capacity;
  burst->hdr.hdr.max_pkt_size = shape_.max_packet_size;
  burst->connection_id = source.connection;
  burst->ends = source.ends;
  burst->stream = source.stream;
  if (source.stream.number != 0) burst->stream.offset += bytes_of(batch, 0, first);
  burst->waiting = &source.waiting;
  for (std::size_t s = 0; s < shape_.regions.size(); ++s) burst->owners[s] = owner_of(batch, s);
  burst->begun_ns = monotonic_ns();
  source.open_ = burst;
  source.older_ = newest_;
  source.newer_ = nullptr;
  (newest_ != nullptr ? newest_->newer_ : oldest_) = &source;
  newest_ = &source;
  ++num_open_;
  return burst;
}

bool Batcher::other_owners(const RxSource& source, const RxBatch& batch) const noexcept {
  if (source.open_ == nullptr) return false;
  for (std::size_t s = 0; s < shape_.regions.size(); ++s) {
    if (source.open_->owners[s] != owner_of(batch, s)) return true;
  }
  return false;
}

std::uint32_t Batcher::add(RxSource& source, const RxBatch& batch, std::uint32_t first,
                           std::uint64_t& bytes) noexcept {
  Burst* burst = source.open_ != nullptr ? source.open_ : open(source, batch, first);
  if (burst == nullptr) return 0;
  const auto at = static_cast<std::uint32_t>(burst->hdr.hdr.num_pkts);
  const std::uint32_t n = std::min(batch.count - first, burst->capacity - at);
  for (std::size_t s = 0; s < shape_.regions.size(); ++s) {
    const RxBatch::Segment& segment = batch.segments[s];
    const std::uint32_t* numbers = segment.buffers + first;
    std::uint32_t* kept = burst->buffers[s] + at;
    void** data = burst->pkts[s] + at;
    if (segment.data != nullptr) {
      std::copy_n(numbers, n, kept);
      std::copy_n(segment.data + first, n, data);
    } else {
      const memory::MemoryRegion& region = *shape_.regions[s];
      for (std::uint32_t i = 0; i < n; ++i) {
        kept[i] = numbers[i];
        data[i] = region.address(numbers[i]);
      }
    }
    segment.lengths.copy(first, n, burst->pkt_lens[s] + at);
  }
  batch.flows.copy(first, n, burst->flow_ids + at);
  batch.times.copy(first, n, burst->timestamps + at);
  const std::uint64_t added = first + n == batch.count ? bytes : bytes_of(batch, first, n);
  bytes -= added;
  burst->hdr.hdr.nbytes += added;
  burst->hdr.hdr.num_pkts = at + n;
  burst->owned = at + n;
  burst->source_packets += n * batch.sources_each;
  return n;
}

std::uint32_t Batcher::room_in_next() noexcept {
  if (spare_ == nullptr) spare_ = pool_.take();
  return spare_ != nullptr ? spare_->capacity : 0;
}

Burst* Batcher::close(RxSource& source) noexcept {
  Burst* burst = std::exchange(source.open_, nullptr);
  if (burst == nullptr) return nullptr;
  (source.older_ != nullptr ? source.older_->newer_ : oldest_) = source.newer_;
  (source.newer_ != nullptr ? source.newer_->older_ : newest_) = source.older_;
  --num_open_;
  return burst;
}

}  // namespace daqiri
