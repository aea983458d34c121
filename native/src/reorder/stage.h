/// The reorder plans of a receive queue.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/rx_queue.h"
#include "reorder/running_plan.h"

namespace daqiri::reorder {

/// Packets of flows that a plan claims become frames; all others pass. While the queue is recorded,
/// packets of plans pass, too.
class ReorderStage final : public RxStage {
 public:
  /// One more plan, before packets come.
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
    /// Null: no plan's.
    RunningPlan* plan{nullptr};
    std::uint32_t index{0};
  };

  /// Whose a flow is.
  [[nodiscard]] const Target& target_of(FlowId flow) noexcept;

  std::vector<RunningPlan*> plans_;
  /// By flow.
  std::vector<Target> targets_;
  Target latest_;
  std::array<Packet, 128> chunk_;
};

}  // namespace daqiri::reorder
