/// What stands between an engine and a queue's bursts.
#pragma once

#include <cstdint>

#include "io/rx_batch.h"

namespace daqiri {

class RxQueue;

/// Takes what the engine delivers and passes on what it makes of it (reorder). Poller.
///
/// Packets that it keeps are counted as held by the queue; each ends as part of what is passed on
/// (RxBatch::sources_each) or as dropped.
class RxStage {
 public:
  RxStage() = default;
  RxStage(const RxStage&) = delete;
  RxStage& operator=(const RxStage&) = delete;
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
