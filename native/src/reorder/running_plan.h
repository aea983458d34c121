/// A running reorder plan: takes packets from receive queues and delivers frames.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "io/rx_queue.h"
#include "reorder/assembler.h"
#include "reorder/mover.h"
#include "reorder/preview.h"
#include "system/ring.h"

namespace daqiri::reorder {

/// Queues of several pollers may feed one plan. Frames are bursts of one packet, in a ring of the
/// plan. Applications get them from the plan's queues, unless one receiver has attached to the plan
/// and gets all frames.
class RunningPlan final : FrameSink, FrameWaiter {
 public:
  /// `queues`: those that its flows lead to; the first one's timeout is the plan's, where it has
  /// none. `output`: a region of `memory`.
  RunningPlan(const ReorderConfig& config, PacketKind kind, std::vector<RxQueue*> queues,
              memory::MemoryRegion& output, std::shared_ptr<SessionMemory> memory,
              bool never_sleep);
  RunningPlan(const RunningPlan&) = delete;
  RunningPlan& operator=(const RunningPlan&) = delete;
  ~RunningPlan() override;

  [[nodiscard]] const std::string& name() const noexcept { return config_.name_; }
  [[nodiscard]] const ReorderConfig& config() const noexcept { return config_; }
  [[nodiscard]] const std::string& interface_name() const noexcept {
    return queues_.front()->interface_name();
  }
  [[nodiscard]] bool on_gpu() const noexcept { return config_.reorder_type_ == "gpu"; }
  [[nodiscard]] int port_id() const noexcept { return queues_.front()->port_id(); }
  /// Where frames are.
  [[nodiscard]] const memory::MemoryRegion& output() const noexcept { return output_; }
  /// What validity of frames is told of.
  [[nodiscard]] std::uint32_t units() const noexcept { return plan_.units(); }
  /// Whether one of its flows leads to the queue.
  [[nodiscard]] bool feeds_on(std::uint16_t queue) const noexcept;
  [[nodiscard]] const std::vector<FlowId>& flow_ids() const noexcept { return plan_.flow_ids(); }

  // --- Pollers.

  /// Place packets. True: their buffers are the caller's again, as they always are with `keep`;
  /// false: they are given back when they have been read.
  bool take(std::span<const Packet> packets, std::uint64_t now_ns, bool keep) noexcept;
  /// Close what has waited long enough. Returns when to be called again; 0: there is no need to.
  std::uint64_t expire(std::uint64_t now_ns) noexcept;
  /// One of its queues closes. With the last one, frames that are open are closed.
  void finish() noexcept;
  /// Forget open frames, those whose payloads are on their way, and those that nobody has taken.
  void discard() noexcept;
  /// The pollers have ended: frames that are on their way are handed on.
  void stop() noexcept;

  /// Where the packet is that the plan's gate waits for; behind the batch: there is none.
  [[nodiscard]] std::uint32_t find_gate(const RxBatch& batch) const noexcept;
  /// That packet, which came at `time`.
  void pass_gate(std::uint64_t time) noexcept;

  // --- Applications. Any thread.

  /// A gate is closed until a packet of this flow, which leads to one of its queues, has come.
  void close_gate(FlowId flow) noexcept;
  /// There is none any more.
  void open_gate() noexcept { gate_.store(NO_GATE, std::memory_order_release); }
  /// Whether the frame's first packet came after the gate's.
  [[nodiscard]] bool begins_after_gate(const Burst& frame) const noexcept {
    return gate_.load(std::memory_order_acquire) == NO_GATE &&
           frame.order >= gate_order_.load(std::memory_order_relaxed) &&
           frame.timestamps[0] >= gate_time_.load(std::memory_order_relaxed);
  }

  /// The next frame for those who ask its queues, or null.
  Burst* receive() noexcept { return taken() ? nullptr : pop(); }
  /// The next frame for who has them to himself, or null.
  Burst* pop() noexcept;
  /// From now on frames are for one taker. Throws Error NOT_READY when there is one.
  void attach(const std::string& name);
  void detach() noexcept;
  /// Whether there is one.
  [[nodiscard]] bool taken() const noexcept { return taken_.load(std::memory_order_acquire); }
  /// Who has the frames wants those that begin from now on: what waits is thrown away.
  void begin_anew() noexcept;
  [[nodiscard]] bool ready() const noexcept { return !taken() && waiting() > 0; }
  [[nodiscard]] std::size_t waiting() const noexcept { return ring_.size(); }
  /// No more frames come.
  [[nodiscard]] bool finished() const noexcept { return finished_.load(std::memory_order_acquire); }
  /// Rung with each frame, and when it has finished.
  WaitQueue& frames() noexcept { return frames_; }
  /// Who has a frame reads of all that was lost before it.
  [[nodiscard]] ReorderSnapshot counters() const noexcept;
  /// Process frames that are closed from now on with a kernel of the GPU, or with none (null). What
  /// was before is not in use any more when this returns. Throws Error; nothing has changed then.
  void set_kernel(const FrameKernel* kernel);
  /// Make frames in a stream of the application (CUstream), or in the plan's own (null). What was
  /// launched before is done when this returns; the stream lives until another is set, or the
  /// session is closed. Throws Error; nothing has changed then.
  void set_stream(void* stream);
  /// Copies of frames, independent of the receiver of the frames.
  Preview& preview() noexcept { return preview_; }

 private:
  /// A frame whose last payloads are on their way.
  struct Closing {
    Frame frame;
    enum class State : std::uint8_t { NONE, WANTED, THROWN_AWAY } state{State::NONE};
  };

  void take(const Frame& frame) noexcept override;
  void discard(std::uint32_t buffer) noexcept override;
  void frame_done(std::uint32_t buffer, bool good) noexcept override;
  void hand(const Frame& frame) noexcept;
  /// A frame whose copies have failed.
  void lose(std::uint32_t buffer) noexcept;
  void throw_away_waiting() noexcept;
  void finish_if_done() noexcept;

  ReorderConfig config_;
  std::vector<RxQueue*> queues_;
  memory::MemoryRegion& output_;
  std::shared_ptr<SessionMemory> memory_;
  Plan plan_;
  std::shared_ptr<const ValidBits> valid_;
  /// As many bursts as buffers: there is one for each frame.
  BurstPool& pool_;
  MpmcRing<Burst*> ring_;

  mutable std::mutex mutex_;  // over the next
  Assembler assembler_;
  std::vector<Closing> closing_;
  std::size_t num_closing_{0};
  std::size_t feeding_;

  static constexpr std::uint64_t NO_GATE = ~std::uint64_t{0};
  /// Flow of the packet that opens it. Who opens it has set the next two before.
  std::atomic<std::uint64_t> gate_{NO_GATE};
  std::atomic<std::uint64_t> gate_time_{0};
  std::atomic<std::uint64_t> gate_order_{0};
  std::atomic<bool> finished_{false};
  std::atomic<bool> taken_{false};
  std::string taker_;
  WaitQueue frames_;
  Preview preview_;
  /// Held while a kernel is set: the mover stays. Before the plan's.
  std::mutex kernel_mutex_;
  /// Ends first. Null: pollers do the copies.
  std::unique_ptr<Mover> mover_;
  /// Of bursts.
  std::shared_ptr<void> event_;
};

}  // namespace daqiri::reorder
