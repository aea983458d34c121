/// The reorder plans of a receive queue.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "io/rx_queue.h"
#include "reorder/assembler.h"

namespace daqiri::reorder {

/// A plan and its frames, which the queue hands out.
class RunningPlan final : FrameSink {
 public:
  /// `output`: a region that outlives the queue.
  RunningPlan(const ReorderConfig& config, PacketKind kind, RxQueue& queue,
              memory::MemoryRegion& output);
  [[nodiscard]] Assembler& assembler() noexcept { return assembler_; }
  /// As published. Any thread.
  [[nodiscard]] ReorderSnapshot counters() const noexcept { return assembler_.counters(); }
  [[nodiscard]] const std::vector<FlowId>& flow_ids() const noexcept { return plan_.flow_ids(); }

 private:
  bool take(const Frame& frame) noexcept override;

  RxQueue& queue_;
  memory::MemoryRegion& output_;
  Plan plan_;
  std::shared_ptr<const ValidBits> valid_;
  Assembler assembler_;
};

/// Packets of flows that a plan claims become frames; all others pass. Poller.
class ReorderStage final : public RxStage {
 public:
  /// One more plan, before packets come.
  void add(RunningPlan& plan);

  void take(RxQueue& queue, RxSource& source, const RxBatch& batch) noexcept override;
  std::uint64_t expire(RxQueue& queue, std::uint64_t now_ns) noexcept override;
  void finish(RxQueue& queue) noexcept override;
  std::uint64_t discard() noexcept override;

 private:
  struct Target {
    FlowId flow{0};
    /// Null: no plan's.
    RunningPlan* plan{nullptr};
    std::uint32_t index{0};
  };

  /// Whose a flow is.
  [[nodiscard]] const Target& target_of(FlowId flow) noexcept;
  /// Hand packets to a plan, and tell the queue which of them are no part of a frame.
  void hand(RxQueue& queue, RunningPlan& plan, std::size_t n) noexcept;

  static constexpr std::size_t CHUNK = 64;

  std::vector<RunningPlan*> plans_;
  /// By flow.
  std::vector<Target> targets_;
  Target latest_;
  Packet chunk_[CHUNK];
};

}  // namespace daqiri::reorder
