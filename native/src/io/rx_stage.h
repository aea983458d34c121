/// Interface of what is between an engine and a queue's bursts.
#pragma once

#include <cstdint>

#include "burst/burst.h"
#include "io/rx_batch.h"

namespace daqiri {

class RxQueue;

/// Accepts packets that the engine delivers (reorder) and makes its own bursts from them. The
/// counters of the queue count these packets as delivered.
class RxStage {
 public:
  virtual ~RxStage() = default;

  // --- Poller.

  /// The stage owns the batch: it calls `queue.pass_on` with packets that it does not accept, and
  /// `queue.count_taken` for the others.
  virtual void take(RxQueue& queue, RxSource& source, const RxBatch& batch) noexcept = 0;
  /// Make bursts of what has waited long enough at `now_ns` (CLOCK_MONOTONIC). Returns when to call
  /// it again; 0: not needed for the packets it has now.
  virtual std::uint64_t expire(std::uint64_t now_ns) noexcept = 0;
  /// The queue closes: no more packets come from it.
  virtual void finish() noexcept = 0;
  /// Discard everything, except frames of plans that a receiver is attached to.
  virtual void discard() noexcept = 0;
  /// Whether a receiver is attached: its packets are accepted while others are discarded.
  [[nodiscard]] virtual bool taken() const noexcept = 0;

  /// Whether the stage accepts the packets of the flow, and does not pass them on. Poller.
  [[nodiscard]] virtual bool claims(FlowId flow) noexcept = 0;

  // --- Application. Any thread.

  /// The next of its bursts in state APPLICATION, or null.
  virtual Burst* receive() noexcept = 0;
  /// Whether a burst may be ready; whether no more bursts will follow.
  [[nodiscard]] virtual bool ready() const noexcept = 0;
  [[nodiscard]] virtual bool finished() const noexcept = 0;
};

}  // namespace daqiri
