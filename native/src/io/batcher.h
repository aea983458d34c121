/// Packets into bursts.
#pragma once

#include <cstdint>
#include <vector>

#include "burst/burst.h"
#include "io/rx_batch.h"
#include "memory/region.h"

namespace daqiri {

/// One open burst for each source; a burst is complete when it is full, when its timeout has passed
/// since its first packet, or when the queue asks for it. Poller.
class Batcher {
 public:
  struct Shape {
    std::uint16_t port{0};
    std::uint16_t queue{0};
    std::uint32_t max_packet_size{0};
    /// ns; 0: none.
    std::uint64_t timeout{0};
    std::vector<memory::MemoryRegion*> regions;
  };

  Batcher(Shape shape, BurstPool& pool) : shape_(std::move(shape)), pool_(pool) {}
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;
  ~Batcher();

  /// Put packets [first, batch.count), of `bytes` bytes, into the source's open burst, as many as
  /// fit; leaves the bytes of the others. Returns how many; 0: there is no burst.
  std::uint32_t add(RxSource& source, const RxBatch& batch, std::uint32_t first,
                    std::uint64_t& bytes) noexcept;
  /// Bytes of packets [first, first + n) of a batch.
  [[nodiscard]] std::uint64_t bytes_of(const RxBatch& batch, std::uint32_t first,
                                       std::uint32_t n) const noexcept {
    std::uint64_t bytes = 0;
    for (std::size_t s = 0; s < shape_.regions.size(); ++s)
      bytes += batch.segments[s].lengths.sum(first, n);
    return bytes;
  }
  /// Give the buffers of packets [first, batch.count) back.
  void give_back(const RxBatch& batch, std::uint32_t first) const noexcept;

  /// Whether the source's open burst, which there is, has no place left.
  [[nodiscard]] bool full(const RxSource& source) const noexcept {
    return room_in_open(source) == 0;
  }
  /// Whether there is an open burst whose buffers go back to others than those of the batch.
  [[nodiscard]] bool other_owners(const RxSource& source, const RxBatch& batch) const noexcept;
  /// Packets that fit the source's open burst; 0: it has none.
  [[nodiscard]] std::uint32_t room_in_open(const RxSource& source) const noexcept {
    const Burst* burst = source.open_;
    return burst == nullptr ? 0 : burst->capacity - burst->num_packets();
  }
  /// Packets that fit the next burst, which is kept ready; 0: there is none.
  [[nodiscard]] std::uint32_t room_in_next() noexcept;
  /// Take the source's open burst; null: it has none.
  Burst* close(RxSource& source) noexcept;

  /// The source whose burst has been open longest; null: none.
  [[nodiscard]] RxSource* oldest() const noexcept { return oldest_; }
  /// CLOCK_MONOTONIC ns at which that burst is due; 0: there is none, or no timeout.
  [[nodiscard]] std::uint64_t due() const noexcept {
    return oldest_ == nullptr || shape_.timeout == 0 ? 0
                                                     : oldest_->open_->begun_ns + shape_.timeout;
  }
  [[nodiscard]] std::uint32_t num_open() const noexcept { return num_open_; }

 private:
  Burst* open(RxSource& source, const RxBatch& batch, std::uint32_t first) noexcept;
  [[nodiscard]] memory::BufferOwner* owner_of(const RxBatch& batch, std::size_t s) const noexcept {
    return batch.segments[s].owner != nullptr ? batch.segments[s].owner : shape_.regions[s];
  }

  Shape shape_;
  BurstPool& pool_;
  /// Taken for a source that has none yet.
  Burst* spare_{nullptr};
  RxSource* oldest_{nullptr};
  RxSource* newest_{nullptr};
  std::uint32_t num_open_{0};
};

}  // namespace daqiri
