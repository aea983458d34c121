/// Rates of queues and plans over the last second.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "io/rx_queue.h"
#include "io/tx_queue.h"
#include "reorder/running_plan.h"

namespace daqiri {

class Session;
struct SessionSnapshot;

/// Periodic copies of counters of the last second.
class SnapshotHistory {
 public:
  static constexpr std::uint64_t KEPT_NS = 1'000'000'000;

  /// `snapshot` is later than all others.
  void add(std::shared_ptr<const SessionSnapshot> snapshot);
  [[nodiscard]] const std::shared_ptr<const SessionSnapshot>& latest() const noexcept {
    return kept_.back();
  }
  /// The latest copy that is not later than `steady`, CLOCK_MONOTONIC ns; the oldest one if there
  /// is none. Null: empty.
  [[nodiscard]] std::shared_ptr<const SessionSnapshot> before(std::uint64_t steady) const noexcept;

 private:
  /// Oldest first: one from before the last second, and those of the last second.
  std::deque<std::shared_ptr<const SessionSnapshot>> kept_;
};

/// Increments per second.
struct Rates {
  double packets{0};
  double bytes{0};
};

/// Over the last second, or since the session was opened; 0 for a closed session.
[[nodiscard]] Rates rates_of(const Session& session, const RxQueue& queue);
[[nodiscard]] Rates rates_of(const Session& session, const TxQueue& queue);
/// Frames, complete or incomplete.
[[nodiscard]] double frame_rate_of(const Session& session, const reorder::RunningPlan& plan);

}  // namespace daqiri
