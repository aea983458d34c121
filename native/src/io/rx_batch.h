/// Received packets on their way from an engine to the bursts of a queue.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>

#include "burst/burst.h"

namespace daqiri {

class RxQueue;

/// One value for each packet of a batch, or the same for all.
template <typename T>
struct Column {
  /// Null: `constant`.
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

/// Packets of one source, in the order of their arrival.
struct RxBatch {
  struct Segment {
    /// Each packet's buffer, by its owner's number.
    const std::uint32_t* buffers{nullptr};
    /// Where each packet's data begin; null: where the region says, which is the owner then.
    void* const* data{nullptr};
    Column<std::uint32_t> lengths;
    /// Null: the queue's memory region.
    memory::BufferOwner* owner{nullptr};
  };

  std::uint32_t count{0};
  /// As many as the queue's packets have.
  Segment segments[MAX_NUM_SEGS];
  Column<FlowId> flows;
  /// Arrival, ns on the port's clock; 0: not known.
  Column<std::uint64_t> times;
  /// Packets from the wire that each packet stands for (an aggregate: many).
  std::uint32_t sources_each{1};
};

/// Where packets come from: the whole queue, or one peer of it. A burst has packets of one source.
///
/// The queue makes it and keeps it; the engine sets `ends` and `stream`.
struct RxSource {
  /// 0: none.
  std::uintptr_t connection{0};
  /// Datagrams: who sent them.
  BurstEnds ends;
  /// Byte streams: place of the next packet.
  StreamPosition stream;
  /// Bursts of it that wait in the ring.
  std::atomic<std::uint32_t> waiting{0};

 private:
  friend class RxQueue;
  Burst* open_{nullptr};
  /// Among those that have an open burst, by the age of the burst.
  RxSource* older_{nullptr};
  RxSource* newer_{nullptr};
};

/// Takes what the engine delivers and passes on what it makes of it (reorder). Poller.
///
/// Packets that it keeps are counted as held by the queue; each ends as part of what is passed on
/// (RxBatch::sources_each) or as dropped.
class RxStage {
 public:
  virtual ~RxStage() = default;

  /// The batch is the stage's: it calls `queue.pass_on`, `queue.drop_staged`, or keeps packets.
  virtual void take(RxQueue& queue, RxSource& source, const RxBatch& batch) noexcept = 0;
  /// Pass on what has waited long enough at `now_ns` (CLOCK_MONOTONIC). Returns when it is to be
  /// called again; 0: not for what it keeps now.
  virtual std::uint64_t expire(RxQueue& queue, std::uint64_t now_ns) noexcept = 0;
  /// Pass on all that it keeps: the queue closes.
  virtual void finish(RxQueue& queue) noexcept = 0;
  /// Give back all that it keeps. Returns how many packets from the wire that were.
  virtual std::uint64_t discard() noexcept = 0;
};

}  // namespace daqiri
