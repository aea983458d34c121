/// A running reorder plan: takes packets from receive queues and delivers frames.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/rx_queue.h"
#include "reorder/assembler.h"
#include "reorder/mover.h"
#include "reorder/preview.h"
#include "system/ring.h"

namespace daqiri::reorder {

/// Queues of several pollers may feed one plan: they share its lock to find the places of payloads,
/// and copy at the same time. Frames are bursts of one packet, in the plan's
/// ring. Applications receive them from the plan's queues, unless one receiver has attached to the
/// plan and receives all frames. While there is no receiver, the oldest frame is given up for one
/// that finds no free buffer, so that previews continue.
///
/// The plan as it is written and its modes are compiled when it is made; one of them is used. The
/// others stay, because pollers and movers may still copy payloads of earlier frames.
class RunningPlan final : FrameSink, FrameWaiter {
 public:
  /// `queues`: the queues of its flows. `output`: a region of `memory`.
  RunningPlan(const ReorderConfig& config, PacketKind kind, std::vector<RxQueue*> queues,
              memory::MemoryRegion& output, std::shared_ptr<SessionMemory> memory,
              bool never_sleep);
  RunningPlan(const RunningPlan&) = delete;
  RunningPlan& operator=(const RunningPlan&) = delete;
  ~RunningPlan() override;

  [[nodiscard]] const std::string& name() const noexcept { return config_.name_; }
  /// In the mode in use.
  [[nodiscard]] const ReorderConfig& config() const noexcept { return mode().config; }
  /// Empty: a plan of the whole configuration.
  [[nodiscard]] const std::string& interface_name() const noexcept { return interface_; }
  /// The ports of its queues.
  [[nodiscard]] std::vector<int> ports() const;
  [[nodiscard]] bool on_gpu() const noexcept { return config_.reorder_type_ == "gpu"; }
  /// The port of its first flow.
  [[nodiscard]] int port_id() const noexcept { return queues_.front()->port_id(); }
  /// The memory region of the frames.
  [[nodiscard]] const memory::MemoryRegion& output() const noexcept { return output_; }
  /// In the mode in use.
  [[nodiscard]] const Plan& plan() const noexcept { return mode().plan; }
  /// Whether one of its flows leads to the queue.
  [[nodiscard]] bool feeds_on(int port, std::uint16_t queue) const noexcept;
  [[nodiscard]] const std::vector<FlowId>& flow_ids() const noexcept {
    return written_.plan.flow_ids();
  }

  // --- Pollers.

  /// Whether others than the pollers copy payloads.
  [[nodiscard]] bool frees_packets() const noexcept {
    return on_gpu() || !config_.cpu_cores_.empty();
  }
  /// Place at most DeferredCopies::MOST packets. Those with an owner are freed after they have been
  /// read; with `keep`, or unless `frees_packets`, they must have none, and the caller owns their
  /// buffers again.
  void take(std::span<const Packet> packets, std::uint64_t now_ns, bool keep) noexcept;
  /// Close batches that have waited long enough. Returns when to call it again; 0: not needed.
  std::uint64_t expire(std::uint64_t now_ns) noexcept;
  /// One of its queues closes. With the last queue, open frames are closed.
  void finish() noexcept;
  /// Discard open frames, frames whose payloads are being copied, and frames that were not
  /// received.
  void discard() noexcept;
  /// The pollers have ended: complete and deliver frames whose payloads are being copied.
  void stop() noexcept;

  /// Index of the packet that opens the plan's gate; batch.count if there is none.
  [[nodiscard]] std::uint32_t find_gate(const RxBatch& batch) const noexcept;
  /// Open the gate with that packet, which arrived at `time`.
  void pass_gate(std::uint64_t time) noexcept;

  // --- Applications. Any thread.

  /// Close the gate until a packet of this flow, which leads to one of its queues, has arrived.
  void close_gate(FlowId flow) noexcept;
  /// Remove the gate.
  void open_gate() noexcept { gate_.store(NO_GATE, std::memory_order_release); }
  /// Whether the frame's first packet arrived after the gate was opened.
  [[nodiscard]] bool begins_after_gate(const Burst& frame) const noexcept {
    return gate_.load(std::memory_order_acquire) == NO_GATE &&
           frame.order >= gate_order_.load(std::memory_order_relaxed) &&
           frame.timestamps[0] >= gate_time_.load(std::memory_order_relaxed);
  }

  /// An application receives from one of its queues: no more frames are given up until a receiver
  /// that attaches detaches.
  void note_reader() noexcept {
    if (!read_.load(std::memory_order_relaxed)) read_.store(true, std::memory_order_relaxed);
  }
  /// The next frame for receivers of its queues, or null.
  Burst* receive() noexcept { return taken() ? nullptr : pop(); }
  /// The next frame for the attached receiver, or null.
  Burst* pop() noexcept;
  /// From now on, only the caller receives frames. Throws Error NOT_READY if another receiver is
  /// attached. `begins_anew`: it calls `begin_anew` before it receives.
  void attach(const std::string& name, bool begins_anew = false);
  void detach() noexcept;
  /// Whether a receiver is attached.
  [[nodiscard]] bool taken() const noexcept { return taken_.load(std::memory_order_acquire); }
  /// Discard waiting frames, because the receiver needs only frames that begin from now on.
  void begin_anew() noexcept;
  /// An acquisition begins; see Assembler::begin_epoch. `since`: on the port's clock. Throws
  /// std::bad_alloc.
  struct Epoch {
    /// Of its first frame.
    std::uint64_t order;
    /// Frames that were absent before.
    std::uint64_t absent;
  };
  Epoch begin_epoch(std::uint64_t since, std::optional<std::uint64_t> first);
  /// The receiver needs no later frames: deliver those of which no more packets are expected.
  /// Returns when they can be received; within a second, if a GPU does not answer.
  void deliver_open() noexcept;
  [[nodiscard]] bool ready() const noexcept { return !taken() && waiting() > 0; }
  [[nodiscard]] std::size_t waiting() const noexcept { return ring_.size(); }
  /// Whether no more frames follow.
  [[nodiscard]] bool finished() const noexcept { return finished_.load(std::memory_order_acquire); }
  /// Rung with each frame, and when the plan has finished.
  WaitQueue& frames() noexcept { return frames_; }
  /// After a frame was received, the counters include all losses before it.
  [[nodiscard]] ReorderSnapshot counters() const noexcept;
  /// Process frames of the mode in use that are closed from now on with a GPU kernel, or with none
  /// (null). On return, the previous kernel is no longer in use. Throws Error without a change.
  void set_kernel(const FrameKernel* kernel);
  /// Assemble frames in a stream of the application (CUstream), or in the plan's own (null). Work
  /// launched before is complete on return; the stream must exist until another is set, or the
  /// session is closed. Throws Error without a change.
  void set_stream(void* stream);
  /// Use a mode from now on; empty: the plan as it is written. Frames that no receiver has are
  /// given up. Throws Error NOT_READY if a receiver is attached or the session is closed,
  /// INVALID_PARAMETER if there is no such mode.
  void set_mode(const std::string& name);
  /// Name of the mode in use.
  [[nodiscard]] const std::string& mode_name() const noexcept { return mode().name; }
  /// Copies of frames, independent of the receiver of the frames.
  Preview& preview() noexcept { return preview_; }

 private:
  /// The plan as it is written, or in one of its modes.
  struct Mode {
    Mode(RunningPlan& owner, std::string name, const ReorderConfig& config, PacketKind kind,
         bool never_sleep);
    std::string name;
    ReorderConfig config;
    Plan plan;
    std::shared_ptr<const ValidBits> valid;
    Assembler assembler;
    /// Destroyed first. Null: pollers do the copies.
    std::unique_ptr<Mover> mover;
  };
  [[nodiscard]] Mode& mode() const noexcept { return *mode_.load(std::memory_order_acquire); }

  /// A closed frame whose last payloads are being copied, or that waits for such a frame.
  struct Closing {
    Frame frame;
    enum class State : std::uint8_t { NONE, WANTED, READY, FAILED, THROWN_AWAY } state{State::NONE};
  };

  /// Whether several pollers copy payloads.
  [[nodiscard]] bool has_copying_pollers() const noexcept;
  /// With `mutex_`. Returns whether it was another; throws as `set_mode`.
  bool use(Mode& wanted);
  /// No more copies to a frame follow.
  Mover::Copies close(std::uint32_t buffer) noexcept;
  bool begin(std::uint32_t buffer) noexcept override;
  bool give_up_oldest() noexcept override;
  void take(const Frame& frame) noexcept override;
  void discard(std::uint32_t buffer) noexcept override;
  void frame_done(std::uint32_t buffer, bool good) noexcept override;
  void hand(const Frame& frame) noexcept;
  /// Hand on the frames whose payloads are there, in order; those whose copies have failed are
  /// lost.
  void hand_ready() noexcept;
  /// Free the buffer of a frame that is not delivered, and its burst.
  void free(std::uint32_t buffer) noexcept;
  /// Adds the number of frames to `count`.
  void throw_away_waiting(std::uint64_t& count) noexcept;
  /// Whether there is no receiver for the frames that wait.
  [[nodiscard]] bool unread() const noexcept {
    return begins_anew_ || (!taken() && !read_.load(std::memory_order_relaxed));
  }
  /// The count of frames that are given up.
  [[nodiscard]] std::uint64_t& given_up() noexcept {
    return read_.load(std::memory_order_relaxed) ? lost_ : untaken_;
  }
  /// Whether the assembler does not know the numbers of packets any more.
  [[nodiscard]] bool is_newly_unknown() noexcept;
  void tell_unknown() const noexcept;
  void finish_if_done() noexcept;

  ReorderConfig config_;
  std::vector<RxQueue*> queues_;
  std::string interface_;
  memory::MemoryRegion& output_;
  std::shared_ptr<SessionMemory> memory_;
  /// As many bursts as buffers. Receivers free the buffer and the burst of a frame one after the
  /// other, so that one may be free without the other.
  BurstPool& pool_;
  MpmcRing<Burst*> ring_;
  /// The bursts of frames that are not yet delivered, by buffer.
  std::vector<Burst*> bursts_;

  mutable std::mutex mutex_;  // for the members below, and the assemblers
  bool unknown_{false};
  /// Frames that were absent in the modes that are not in use.
  std::uint64_t absent_in_others_{0};
  std::vector<Closing> closing_;
  /// Number of frames whose payloads are being copied.
  std::size_t num_closing_{0};
  /// Buffers of closed frames that are not thrown away, in the order of the frames: a ring with
  /// space for all.
  std::vector<std::uint32_t> line_;
  std::size_t line_begin_{0};
  std::size_t line_length_{0};
  /// Frames of the assembler that were lost, in the order of the frames.
  std::uint64_t lost_{0};
  std::uint64_t untaken_{0};
  /// The attached receiver has not called `begin_anew` yet.
  bool begins_anew_{false};
  std::size_t feeding_;

  static constexpr std::uint64_t NO_GATE = ~std::uint64_t{0};
  /// Flow of the packet that opens the gate. The next two are set before it is opened.
  std::atomic<std::uint64_t> gate_{NO_GATE};
  std::atomic<std::uint64_t> gate_time_{0};
  std::atomic<std::uint64_t> gate_order_{0};
  std::atomic<bool> finished_{false};
  std::atomic<bool> taken_{false};
  std::atomic<bool> read_{false};
  std::string taker_;
  WaitQueue frames_;
  Preview preview_;
  /// Held while applications use the mover, so that it is not destroyed. Locked before `mutex_`.
  std::mutex kernel_mutex_;
  /// If several pollers copy.
  std::optional<OpenCopies> open_copies_;
  Mode written_;
  std::vector<std::unique_ptr<Mode>> modes_;
  /// One of them; changed with `mutex_`.
  std::atomic<Mode*> mode_{&written_};
  /// The event of the bursts.
  std::shared_ptr<void> event_;
};

}  // namespace daqiri::reorder
