/// A receive queue: puts packets from an engine into bursts for the application.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "burst/burst.h"
#include "io/rx_batch.h"
#include "io/rx_stage.h"
#include "io/session_memory.h"
#include "metrics/counters.h"
#include "system/doorbell.h"
#include "system/ring.h"

namespace daqiri {

/// Most bytes of a packet that the first of several memory regions gets, whose buffers have
/// `buf_size` bytes.
[[nodiscard]] inline std::uint32_t first_segment_capacity(const CommonQueueConfig& queue,
                                                          std::uint32_t buf_size) noexcept {
  const auto split = static_cast<std::uint32_t>(queue.split_boundary_);
  return split == 0 ? buf_size : std::min(buf_size, split);
}

class RxQueue : public QueueBase<RxQueueConfig> {
 public:
  /// MANY: in addition to its `meta_buffers` bursts, the queue may have a small burst for every
  /// packet buffer. Any number of sources, each with its own bursts, can then receive while there
  /// are buffers. Without a timeout, bursts are delivered at the end of each pass.
  enum class Sources : std::uint8_t { FEW, MANY };

  RxQueue(const InterfaceConfig& interface, const RxQueueConfig& config, std::uint32_t meta_buffers,
          std::shared_ptr<SessionMemory> memory, Sources sources = Sources::FEW);
  ~RxQueue();

  /// Most bytes of a packet that segment `s` holds (split boundary, buffer size).
  [[nodiscard]] std::uint32_t segment_capacity(int segment) const noexcept {
    return segment_capacity_[static_cast<std::size_t>(segment)];
  }
  [[nodiscard]] std::uint32_t ring_capacity() const noexcept {
    return static_cast<std::uint32_t>(ring_.capacity());
  }
  /// Whether applications use packets on a GPU, to which they are copied when they are delivered,
  /// unless a network card has written them there.
  [[nodiscard]] bool on_gpu() const noexcept { return on_gpu_; }
  /// Keep an engine's memory alive for as long as packets in it are in use.
  void share_owner(std::shared_ptr<memory::BufferOwner> owner) {
    memory_->owners.push_back(std::move(owner));
  }
  /// All packets are received in an engine's memory, not in buffers of the queue's regions; it may
  /// have none. Call while the engine opens.
  void receive_into(std::shared_ptr<memory::BufferOwner> owner);
  /// Whose buffers packets are in, unless a batch says otherwise.
  [[nodiscard]] const memory::BufferOwner& buffers(int segment) const noexcept {
    return *buffers_[static_cast<std::size_t>(segment)];
  }
  /// Whether the CPU can read all packets.
  [[nodiscard]] bool host_readable() const noexcept {
    return std::ranges::all_of(buffers_, &memory::BufferOwner::host_readable);
  }

  // --- Poller. One thread.

  /// Packets of a source, or of the queue itself. Packets without a free burst, and bursts that do
  /// not fit into the ring, are dropped and counted.
  void deliver(RxSource& source, const RxBatch& batch) noexcept;
  void deliver(const RxBatch& batch) noexcept { deliver(main_source_, batch); }
  /// Count `n` packets that never reached a buffer.
  void drop(DropReason reason, std::uint64_t n, std::uint64_t bytes = 0) noexcept;
  /// Whether packets of the flow go to the stage only, which needs no burst for them and returns
  /// their buffers soon.
  [[nodiscard]] bool stage_claims(FlowId flow) const noexcept {
    return stage_ != nullptr && !recorded() && stage_->claims(flow);
  }
  [[nodiscard]] bool has_stage() const noexcept { return stage_ != nullptr; }
  /// Whether packets that are delivered now are dropped.
  [[nodiscard]] bool discards() const noexcept {
    return filtering_ || (discarding() && (stage_ == nullptr || !stage_->taken()));
  }
  /// Count `n` delivered packets that were truncated to their buffers.
  void count_truncated(std::uint32_t n = 1) noexcept { tally_.truncated += n; }
  /// At the end of a pass: deliver bursts that are due to the application. Returns when the next
  /// one is due, CLOCK_MONOTONIC ns; 0: none.
  std::uint64_t deliver_expired(std::uint64_t now_ns) noexcept;
  /// Deliver every open burst to the application.
  void deliver_open() noexcept;
  /// Like `deliver_open`, including what the stage holds: the queue closes.
  void deliver_all() noexcept;
  /// Whether packets, of this or another queue that uses one of its regions, found no buffer since
  /// the last call, and open bursts may hold these buffers, because the application has received
  /// all other bursts.
  [[nodiscard]] bool starves() noexcept;
  /// Packets wait because no buffer is free. Any thread.
  void note_shortage() noexcept;
  /// Like `note_shortage`, and wake sleeping pollers.
  void ask_for_buffers() noexcept;
  /// Called before and after the engine's part of a poll pass, which began at `now_ns`
  /// (CLOCK_MONOTONIC): read requests to discard; carry them out and publish the counters.
  void begin_pass(std::uint64_t now_ns) noexcept;
  void end_pass() noexcept;
  /// Whether this pass discards what the engine still holds: all delivered packets are dropped.
  [[nodiscard]] bool discarding() const noexcept {
    return discards_due_ != discards_done_.load(std::memory_order_relaxed);
  }
  /// Number of the request that this pass discards for, and the reason that is counted.
  [[nodiscard]] std::uint64_t discard_request() const noexcept { return discards_due_; }
  [[nodiscard]] DropReason discard_reason() const noexcept {
    return filtering_ ? DropReason::FILTERED : DropReason::FLUSHED;
  }

  // For engines whose sources can wait, so that packets need not be dropped.

  /// Number of packets that `deliver` is certain to accept from `source`, at most one burst. 0: no
  /// free burst, or the ring is full; another pass follows soon. With several sources, a source
  /// with a slow consumer leaves half of the free buffers to the others.
  std::uint32_t room(RxSource& source) noexcept;
  /// Deliver the source's open burst, if any, to the application.
  void finish(RxSource& source) noexcept;
  /// Like `finish`, unless the burst's buffers belong to `owner`; null: to the queue's regions.
  void finish_unless_of(RxSource& source, const memory::BufferOwner* owner) noexcept;
  /// Packets wait for an event without notification: make another pass soon.
  void look_again() noexcept { no_room_ = true; }

  /// The source of packets without a connection.
  RxSource& main_source() noexcept { return main_source_; }
  /// Add a separate source for a connection. Any thread. Throws std::bad_alloc.
  RxSource& add_source(std::uintptr_t connection, const BurstEnds& ends = {});
  /// No more packets come from the source; its open burst is delivered to the application. Poller.
  void retire(RxSource& source) noexcept;

  /// Whose buffers segment `s` of a batch is in.
  [[nodiscard]] memory::BufferOwner* owner_of(const RxBatch& batch, std::size_t s) const noexcept {
    return batch.segments[s].owner != nullptr ? batch.segments[s].owner : buffers_[s];
  }

  // For a stage between the engine and the bursts.

  void set_stage(std::unique_ptr<RxStage> stage) noexcept { stage_ = std::move(stage); }
  /// Packets that the stage does not keep.
  void pass_on(RxSource& source, const RxBatch& batch) noexcept;
  /// Packets that the stage has accepted; it owns their buffers.
  void count_taken(std::uint32_t n) noexcept {
    tally_.delivered += n;
    dirty_ = true;
  }
  /// When this pass began, CLOCK_MONOTONIC ns.
  [[nodiscard]] std::uint64_t pass_ns() const noexcept { return pass_ns_; }

  /// The poller that serves this queue. Call before it starts.
  void set_poller(Doorbell& poller);
  /// Wakes the poller that serves this queue.
  Doorbell* poller_doorbell{nullptr};

  // --- Application. Any thread.

  /// Return the next burst, or null. Never blocks. The burst has the state APPLICATION; `release`
  /// frees it. Throws Error GENERIC_FAILURE if it cannot be copied to the queue's GPU: it is lost;
  /// NOT_READY if a recorder owns the queue. Without a lock: a call during `attach_recorder` may
  /// still return a burst.
  Burst* receive();
  /// Like `receive`, without bursts of the stage, and without a copy to the queue's regions, also
  /// while a recorder owns the queue: for callers that free them soon.
  Burst* receive_packets() noexcept;
  /// Like `receive`, for one connection; bursts of other connections stay queued.
  Burst* receive_from(std::uintptr_t connection);
  /// Like `receive` (connection 0) or `receive_from`, with a lock: returns no burst after a
  /// recorder has attached.
  Burst* receive_unrecorded(std::uintptr_t connection);
  /// Wait until a burst of `connection` (0: any) may be ready, the queue is closed, or the timeout
  /// has passed. Returns false if a signal interrupted.
  bool wait(std::int64_t timeout_ns, std::uintptr_t connection = 0) noexcept;
  /// Rung when a burst is ready or the queue closes.
  WaitQueue& ready() noexcept { return ready_; }
  /// Discard what the engine, the stage, open bursts and the ring hold, except frames of plans that
  /// a receiver is attached to. Packets count as flushed, or as filtered if `set_drop_all` is on.
  /// Waits at most 5 s for the poller. Throws Error.
  void request_flush();
  /// While set, arriving packets are counted as filtered; queued packets are dropped too. After it
  /// is cleared, no packet that arrived before reaches the application.
  void set_drop_all(bool on);

  /// One recorder at most owns the ring; throws Error NOT_READY if there is one already.
  void attach_recorder(const std::string& name);
  void detach_recorder() noexcept;
  /// Name of the recorder that owns the ring; empty: none.
  [[nodiscard]] std::string recorder() const;
  /// Whether a recorder owns the ring. Any thread.
  [[nodiscard]] bool recorded() const noexcept { return recorded_.load(std::memory_order_acquire); }

  /// The poller has ended: what the ring still holds can be received, nothing follows.
  void mark_closed() noexcept;
  /// Whether no more bursts follow, including those of the stage.
  [[nodiscard]] bool closed() const noexcept {
    return closed_.load(std::memory_order_acquire) && (stage_ == nullptr || stage_->finished());
  }

  [[nodiscard]] RxSnapshot counters() const noexcept;
  [[nodiscard]] QueueLevels levels() const noexcept;

 private:
  /// Add packets with `bytes` bytes to the source's burst. Each source has one open burst, until it
  /// is full, its timeout has passed since its first packet, or it is requested.
  void put_into_bursts(RxSource& source, const RxBatch& batch, std::uint64_t bytes) noexcept;
  /// Open a burst for packets [first, batch.count); null: no burst is free.
  Burst* open_burst(RxSource& source, const RxBatch& batch, std::uint32_t first) noexcept;
  /// Close and return the source's open burst; null: it had none.
  Burst* close_burst(RxSource& source) noexcept;
  /// Add packets [first, first + n) of a batch, for which the burst has space.
  void add(Burst& burst, const RxBatch& batch, std::uint32_t first, std::uint32_t n) const noexcept;
  [[nodiscard]] std::uint64_t bytes_of(const RxBatch& batch, std::uint32_t first,
                                       std::uint32_t n) const noexcept;
  /// Free the buffers of packets [first, batch.count).
  void give_back(const RxBatch& batch, std::uint32_t first) const noexcept;
  void put_into_ring(Burst* burst) noexcept;
  /// Drop packets that were accepted.
  void drop_held(DropReason reason, std::uint64_t n) noexcept;
  void discard_queued(DropReason reason) noexcept;
  void publish() noexcept;
  Burst* hand_to_application(Burst* burst) noexcept;
  Burst* take_from(std::uintptr_t connection);
  /// Throws Error NOT_READY if the name of the recorder is not empty.
  void refuse_if_recorded(const std::string& recorder) const;
  /// The next burst of the stage, or null.
  Burst* receive_frames() noexcept { return stage_ == nullptr ? nullptr : stage_->receive(); }
  /// Move the packets to the memory that the configuration specifies. Throws like `receive`.
  Burst* move_to_regions(Burst* burst);
  /// Copy packets from memory that is needed again soon to the queue's regions. Returns false if
  /// these have too few free buffers.
  bool replace_lent(Burst& burst) const noexcept;

  /// By segment: whose buffers packets are in, unless a batch says otherwise.
  std::vector<memory::BufferOwner*> buffers_;
  std::vector<std::uint32_t> segment_capacity_;
  bool on_gpu_;
  /// Of new bursts: see Burst::on_device.
  std::uint32_t written_on_device_{0};
  /// Whether no burst stays open after a pass.
  bool at_once_;
  BurstPool* pool_;
  MpmcRing<Burst*> ring_;

  // --- Poller.
  std::unique_ptr<RxStage> stage_;
  RxSource main_source_;
  /// A burst taken for a source that has no open burst yet.
  Burst* spare_{nullptr};
  /// Sources that have an open burst, ordered by the age of the burst.
  RxSource* oldest_{nullptr};
  RxSource* newest_{nullptr};
  std::uint32_t num_open_{0};
  /// There was no space in this pass.
  bool no_room_{false};
  /// `held` counts all accepted packets; delivered ones are subtracted when it is read.
  RxSnapshot tally_;
  bool dirty_{false};
  /// Bursts that begin in the same pass are due at the same time.
  std::uint64_t pass_ns_{0};
  /// Sum over all regions.
  std::uint64_t shortages_seen_{0};
  /// The filter in force; a change of `filter_wanted_` takes effect in the pass that discards for
  /// it.
  bool filtering_{false};
  std::uint64_t discards_due_{0};
  PublishedCounters<RxSnapshot> published_;

  // --- Both sides, on separate cache lines: the poller reads what seldom changes, consumers write
  // what changes with every burst.
  alignas(64) std::atomic<std::uint64_t> delivered_{0};
  alignas(64) WaitQueue ready_;
  alignas(64) std::atomic<std::uint64_t> discard_requests_{0};
  std::atomic<std::uint64_t> discards_done_{0};
  std::atomic<bool> filter_wanted_{false};
  std::atomic<bool> recorded_{false};
  std::atomic<bool> closed_{false};

  /// Sources of connections; not used on the packet path.
  std::mutex sources_mutex_;
  std::deque<RxSource> sources_;
  std::vector<RxSource*> retired_;
  std::atomic<std::size_t> num_sources_{0};

  // --- Application.
  /// Bursts taken from the ring during a search for another connection's bursts, oldest first.
  std::mutex aside_mutex_;
  std::deque<Burst*> aside_;
  [[nodiscard]] std::deque<Burst*>::iterator aside(std::uintptr_t connection);
  std::atomic<std::size_t> num_aside_{0};
  mutable std::mutex recorder_mutex_;
  std::string recorder_;
};

}  // namespace daqiri
