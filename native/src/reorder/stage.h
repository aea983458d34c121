/// The reorder plans of a receive queue.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "io/rx_queue.h"
#include "reorder/assembler.h"

namespace daqiri::reorder {

/// Packets of flows that a plan claims become frames; all others pass. Poller.
class ReorderStage final : public RxStage {
 public:
  /// One more plan, before packets come. `output`: a region that outlives the queue.
  void add(const ReorderConfig& config, PacketKind kind, RxQueue& queue,
           memory::MemoryRegion& output);

  void take(RxQueue& queue, RxSource& source, const RxBatch& batch) noexcept override;
  std::uint64_t expire(RxQueue& queue, std::uint64_t now_ns) noexcept override;
  void finish(RxQueue& queue) noexcept override;
  std::uint64_t discard() noexcept override;

  struct Counters {
    std::string plan;
    ReorderSnapshot counters;
  };
  /// As published. Any thread.
  [[nodiscard]] std::vector<Counters> counters() const;

 private:
  /// A plan and its frames.
  struct Running final : FrameSink {
    Running(const ReorderConfig& config, PacketKind kind, RxQueue& to,
            memory::MemoryRegion& region);
    bool take(const Frame& frame) noexcept override;

    std::string name;
    RxQueue& queue;
    memory::MemoryRegion& output;
    Plan plan;
    std::shared_ptr<const ValidBits> valid;
    Assembler assembler;
  };
  struct Target {
    FlowId flow{0};
    /// Null: no plan's.
    Running* running{nullptr};
    std::uint32_t index{0};
  };

  /// Whose a flow is.
  [[nodiscard]] const Target& target_of(FlowId flow) noexcept;
  /// Hand packets to a plan, and tell the queue which of them are no part of a frame.
  void hand(RxQueue& queue, Running& running, std::size_t n) noexcept;

  static constexpr std::size_t CHUNK = 64;

  std::deque<Running> plans_;
  /// By flow.
  std::vector<Target> targets_;
  Target latest_;
  Packet chunk_[CHUNK];
};

}  // namespace daqiri::reorder
