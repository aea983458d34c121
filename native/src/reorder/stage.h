/// The reorder plans of a receive queue.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/rx_queue.h"
#include "reorder/deferred_copies.h"
#include "reorder/running_plan.h"

namespace daqiri::reorder {

/// Packets of flows that belong to a plan become frames; all others are passed on. While the queue
/// is recorded, packets of plans are passed on, too.
class ReorderStage final : public RxStage {
 public:
  /// Add a plan; call before packets arrive.
  void add(RunningPlan& plan);

  void take(RxQueue& queue, RxSource& source, const RxBatch& batch) noexcept override;
  std::uint64_t expire(std::uint64_t now_ns) noexcept override;
  void finish() noexcept override;
  [[nodiscard]] bool claims(FlowId flow) noexcept override {
    return target_of(flow).plan != nullptr;
  }
  void discard() noexcept override;
  [[nodiscard]] bool taken() const noexcept override;
  Burst* receive() noexcept override;
  [[nodiscard]] bool ready() const noexcept override;
  [[nodiscard]] bool finished() const noexcept override;

 private:
  struct Target {
    FlowId flow{0};
    /// Null: the flow belongs to no plan.
    RunningPlan* plan{nullptr};
    std::uint32_t index{0};
  };

  /// The plan of a flow.
  [[nodiscard]] const Target& target_of(FlowId flow) noexcept;

  std::vector<RunningPlan*> plans_;
  /// By flow.
  std::vector<Target> targets_;
  Target latest_;
  std::array<Packet, DeferredCopies::MOST> chunk_;
};

}  // namespace daqiri::reorder
