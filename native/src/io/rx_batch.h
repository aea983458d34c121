/// Packets as an engine delivers them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>

#include "burst/burst.h"
#include "memory/buffers.h"

namespace daqiri {

/// One value per packet of a batch, or one value for all packets.
template <typename T>
struct Column {
  /// Null: use `constant`.
  const T* values{nullptr};
  T constant{};

  [[nodiscard]] std::uint64_t sum(std::uint32_t first, std::uint32_t n) const noexcept {
    if (values == nullptr) return std::uint64_t{constant} * n;
    return std::accumulate(values + first, values + first + n, std::uint64_t{0});
  }
  [[nodiscard]] T operator[](std::uint32_t i) const noexcept {
    return values != nullptr ? values[i] : constant;
  }
  void copy(std::uint32_t first, std::uint32_t n, T* to) const noexcept {
    if (n == 1) {
      *to = (*this)[first];
    } else if (values != nullptr) {
      std::copy_n(values + first, n, to);
    } else {
      std::fill_n(to, n, constant);
    }
  }
};

/// Packets of one source, in the order of arrival.
struct RxBatch {
  struct Segment {
    /// Buffer numbers of the packets, as numbered by the owner.
    const std::uint32_t* buffers{nullptr};
    /// Addresses of the packets' data; null: the region, which is then the owner, computes them.
    void* const* data{nullptr};
    Column<std::uint32_t> lengths;
    /// Null: the queue's memory region.
    memory::BufferOwner* owner{nullptr};
  };

  std::uint32_t count{0};
  /// As many segments as the queue's packets have.
  Segment segments[MAX_NUM_SEGS];
  Column<FlowId> flows;
  /// Arrival, ns on the port's clock; 0: unknown.
  Column<std::uint64_t> times;

  /// Packets [first, first + n).
  [[nodiscard]] RxBatch part(std::uint32_t first, std::uint32_t n) const noexcept {
    RxBatch some = *this;
    some.count = n;
    for (Segment& segment : some.segments) {
      if (segment.buffers != nullptr) segment.buffers += first;
      if (segment.data != nullptr) segment.data += first;
      if (segment.lengths.values != nullptr) segment.lengths.values += first;
    }
    if (some.flows.values != nullptr) some.flows.values += first;
    if (some.times.values != nullptr) some.times.values += first;
    return some;
  }
};

/// A source of packets: the whole queue, or one of its peers. A burst contains packets of one
/// source.
///
/// Owned by the queue; the engine sets `ends` and `stream`.
struct RxSource {
  /// 0: none.
  std::uintptr_t connection{0};
  /// Datagrams: the sender's addresses.
  BurstEnds ends;
  /// Byte streams: position of the next packet.
  StreamPosition stream;
  /// Number of its packets that wait in the ring.
  std::atomic<std::uint32_t> waiting{0};

 private:
  friend class RxQueue;
  Burst* open_{nullptr};
  /// Neighbours in the list of sources with an open burst, ordered by the age of the burst.
  RxSource* older_{nullptr};
  RxSource* newer_{nullptr};
};

}  // namespace daqiri
