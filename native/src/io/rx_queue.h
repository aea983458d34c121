/// A receive queue: puts packets from an engine into bursts for the application.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "burst/burst.h"
#include "io/session_memory.h"
#include "metrics/counters.h"
#include "system/doorbell.h"
#include "system/ring.h"

namespace daqiri {

class RxQueue;

/// One value for each packet of a batch, or the same for all.
template <typename T>
struct Column {
  /// Null: `constant`.
  const T* values{nullptr};
  T constant{};

  [[nodiscard]] std::uint64_t sum(std::uint32_t first, std::uint32_t n) const noexcept {
    if (values == nullptr) return std::uint64_t{constant} * n;
    return std::accumulate(values + first, values + first + n, std::uint64_t{0});
  }
  [[nodiscard]] T operator[](std::uint32_t i) const noexcept {
    return values != nullptr ? values[i] : constant;
  }
  void copy(std::uint32_t first, std::uint32_t n, T* to) const noexcept {
    if (n == 1) {
      *to = (*this)[first];
    } else if (values != nullptr) {
      std::copy_n(values + first, n, to);
    } else {
      std::fill_n(to, n, constant);
    }
  }
};

/// Packets of one source, in the order of their arrival.
struct RxBatch {
  struct Segment {
    /// Each packet's buffer, by its owner's number.
    const std::uint32_t* buffers{nullptr};
    /// Where each packet's data begin; null: where the region says, which is the owner then.
    void* const* data{nullptr};
    Column<std::uint32_t> lengths;
    /// Null: the queue's memory region.
    memory::BufferOwner* owner{nullptr};
  };

  std::uint32_t count{0};
  /// As many as the queue's packets have.
  Segment segments[MAX_NUM_SEGS];
  Column<FlowId> flows;
  /// Arrival, ns on the port's clock; 0: not known.
  Column<std::uint64_t> times;

  /// Packets [first, first + n).
  [[nodiscard]] RxBatch part(std::uint32_t first, std::uint32_t n) const noexcept {
    RxBatch some = *this;
    some.count = n;
    for (Segment& segment : some.segments) {
      if (segment.buffers != nullptr) segment.buffers += first;
      if (segment.data != nullptr) segment.data += first;
      if (segment.lengths.values != nullptr) segment.lengths.values += first;
    }
    if (some.flows.values != nullptr) some.flows.values += first;
    if (some.times.values != nullptr) some.times.values += first;
    return some;
  }
};

/// Where packets come from: the whole queue, or one peer of it. A burst has packets of one source.
///
/// The queue makes it and keeps it; the engine sets `ends` and `stream`.
struct RxSource {
  /// 0: none.
  std::uintptr_t connection{0};
  /// Datagrams: who sent them.
  BurstEnds ends;
  /// Byte streams: place of the next packet.
  StreamPosition stream;
  /// Packets of it that wait in the ring.
  std::atomic<std::uint32_t> waiting{0};

 private:
  friend class RxQueue;
  Burst* open_{nullptr};
  /// Among those that have an open burst, by the age of the burst.
  RxSource* older_{nullptr};
  RxSource* newer_{nullptr};
};

/// Takes packets that the engine delivers (reorder), and makes bursts of its own of them. What it
/// takes is delivered, as far as the queue's account goes.
class RxStage {
 public:
  virtual ~RxStage() = default;

  // --- Poller.

  /// The batch is the stage's: it calls `queue.pass_on` with packets that it does not want, and
  /// `queue.count_taken` for the others.
  virtual void take(RxQueue& queue, RxSource& source, const RxBatch& batch) noexcept = 0;
  /// Make bursts of what has waited long enough at `now_ns` (CLOCK_MONOTONIC). Returns when it is
  /// to be called again; 0: not for what it keeps now.
  virtual std::uint64_t expire(std::uint64_t now_ns) noexcept = 0;
  /// The queue closes: nothing more comes from it.
  virtual void finish() noexcept = 0;
  /// Discard everything it holds, except frames of plans that a receiver has attached to.
  virtual void discard() noexcept = 0;
  /// Whether there is such a one: packets for him are taken while others are discarded.
  [[nodiscard]] virtual bool taken() const noexcept = 0;

  /// Whether packets of the flow are its, and do not pass. Poller.
  [[nodiscard]] virtual bool claims(FlowId flow) noexcept = 0;

  // --- Application. Any thread.

  /// The next of its bursts in state APPLICATION, or null.
  virtual Burst* receive() noexcept = 0;
  /// Whether there may be one; whether there will be none any more.
  [[nodiscard]] virtual bool ready() const noexcept = 0;
  [[nodiscard]] virtual bool finished() const noexcept = 0;
};

class RxQueue : public QueueBase<RxQueueConfig> {
 public:
  /// MANY: beside its `meta_buffers` bursts the queue may have a small one for every packet buffer,
  /// so that any number of sources, each with bursts of its own, is received while there are
  /// buffers. Without a timeout, what a pass has read is then handed over at its end.
  enum class Sources : std::uint8_t { FEW, MANY };

  RxQueue(const InterfaceConfig& interface, const RxQueueConfig& config, std::uint32_t meta_buffers,
          std::shared_ptr<SessionMemory> memory, Sources sources = Sources::FEW);
  ~RxQueue();

  /// Bytes that segment `s` takes of a packet (split boundary, buffer size).
  [[nodiscard]] std::uint32_t segment_capacity(int segment) const noexcept {
    return segment_capacity_[static_cast<std::size_t>(segment)];
  }
  [[nodiscard]] std::uint32_t ring_capacity() const noexcept {
    return static_cast<std::uint32_t>(ring_.capacity());
  }
  /// Whether packets are copied to a GPU when they are handed out.
  [[nodiscard]] bool staged() const noexcept { return staged_; }
  /// Keep memory of an engine's own for as long as packets in it are held.
  void share_owner(std::shared_ptr<memory::BufferOwner> owner) {
    memory_->owners.push_back(std::move(owner));
  }

  // --- Poller. One thread.

  /// Packets of a source, or of the queue itself. Those for which there is no burst, or a burst for
  /// which the ring has no room, are dropped and counted.
  void deliver(RxSource& source, const RxBatch& batch) noexcept;
  void deliver(const RxBatch& batch) noexcept { deliver(main_source_, batch); }
  /// Count `n` packets that never reached a buffer.
  void drop(DropReason reason, std::uint64_t n, std::uint64_t bytes = 0) noexcept;
  /// Whether packets of the flow are the stage's alone, which needs no burst for them and gives
  /// their buffers back soon.
  [[nodiscard]] bool stage_claims(FlowId flow) const noexcept {
    return stage_ != nullptr && !recorded() && stage_->claims(flow);
  }
  [[nodiscard]] bool has_stage() const noexcept { return stage_ != nullptr; }
  /// Whether what is delivered now is dropped.
  [[nodiscard]] bool discards() const noexcept {
    return filtering_ || (discarding() && (stage_ == nullptr || !stage_->taken()));
  }
  /// Count `n` delivered packets that were cut to their buffers.
  void count_truncated(std::uint32_t n = 1) noexcept { tally_.truncated += n; }
  /// At the end of a pass: hand bursts that are not to wait any longer to the application. Returns
  /// CLOCK_MONOTONIC ns of the next one due, 0: none.
  std::uint64_t deliver_expired(std::uint64_t now_ns) noexcept;
  /// Hand every open burst to the application.
  void deliver_open() noexcept;
  /// As above, and what the stage keeps: the queue closes.
  void deliver_all() noexcept;
  /// Whether packets, of this or another queue of one of its regions, found no buffer since the
  /// last call, and open bursts may be what holds them: the application has taken all others.
  [[nodiscard]] bool starves() noexcept;
  /// Packets wait because no buffer is free. Any thread.
  void note_shortage() noexcept;
  /// As above, and pollers that sleep are to know now.
  void ask_for_buffers() noexcept;
  /// Before and after the engine's part of a poll pass, which began at `now_ns` (CLOCK_MONOTONIC):
  /// take in requests to discard; carry them out and publish the counters.
  void begin_pass(std::uint64_t now_ns) noexcept;
  void end_pass() noexcept;
  /// In this pass, what the engine still holds is to be discarded: all that it delivers is dropped.
  [[nodiscard]] bool discarding() const noexcept {
    return discards_due_ != discards_done_.load(std::memory_order_relaxed);
  }
  /// Number of the request that this pass discards for, and what it is counted as.
  [[nodiscard]] std::uint64_t discard_request() const noexcept { return discards_due_; }
  [[nodiscard]] DropReason discard_reason() const noexcept {
    return filtering_ ? DropReason::FILTERED : DropReason::FLUSHED;
  }

  // For engines whose sources can wait, so that they need not be dropped.

  /// Packets that `deliver` will take from `source` for sure. At most one burst; 0: no burst, or no
  /// room in the ring; there is another pass soon then. With several sources, one whose consumer is
  /// slow leaves half of what is free to the others.
  std::uint32_t room(RxSource& source) noexcept;
  /// Hand the source's open burst to the application, if there is one.
  void finish(RxSource& source) noexcept;
  /// As above, where its buffers are not those of `owner`; null: of the queue's regions.
  void finish_unless_of(RxSource& source, const memory::BufferOwner* owner) noexcept;
  /// Packets wait for what nobody tells of: there is to be another pass soon.
  void look_again() noexcept { no_room_ = true; }

  /// Packets without a connection.
  RxSource& main_source() noexcept { return main_source_; }
  /// A source of its own for a connection. Any thread. Throws std::bad_alloc.
  RxSource& add_source(std::uintptr_t connection, const BurstEnds& ends = {});
  /// No more comes from the source; its open burst is handed to the application. Poller.
  void retire(RxSource& source) noexcept;

  // For a stage between the engine and the bursts.

  void set_stage(std::unique_ptr<RxStage> stage) noexcept { stage_ = std::move(stage); }
  /// Packets that the stage is done with.
  void pass_on(RxSource& source, const RxBatch& batch) noexcept;
  /// Packets that the stage has taken; their buffers are its.
  void count_taken(std::uint32_t n) noexcept {
    tally_.delivered += n;
    dirty_ = true;
  }
  /// When this pass began, CLOCK_MONOTONIC ns.
  [[nodiscard]] std::uint64_t pass_ns() const noexcept { return pass_ns_; }

  /// The poller that serves this queue. Before it starts.
  void set_poller(Doorbell& poller);
  /// Wakes the poller that serves this queue.
  Doorbell* poller_doorbell{nullptr};

  // --- Application. Any thread.

  /// The next burst, or null. Never blocks. State APPLICATION; release() gives it back. Throws
  /// Error GENERIC_FAILURE where it cannot be copied to the queue's GPU: it is lost.
  Burst* receive();
  /// As above, none of the stage's own, and wherever the packets lie: for who gives them back soon.
  Burst* receive_packets() noexcept;
  /// As `receive`, of one connection; bursts of others wait their turn.
  Burst* receive_from(std::uintptr_t connection);
  /// As `receive` (connection 0) or `receive_from`, unless a recorder owns the queue. Throws Error
  /// NOT_READY then.
  Burst* receive_unrecorded(std::uintptr_t connection);
  /// Wait until there may be a burst, of `connection` (0: any), the queue is closed, or the time is
  /// over. False when interrupted by a signal.
  bool wait(std::int64_t timeout_ns, std::uintptr_t connection = 0) noexcept;
  /// Rung when a burst is ready or the queue closes.
  WaitQueue& ready() noexcept { return ready_; }
  /// Discard what the engine, the stage, open bursts and the ring hold, except frames of plans that
  /// a receiver has attached to. Packets count as flushed, or as filtered if `set_drop_all` is on.
  /// Waits at most 5 s for the poller. Throws Error.
  void request_flush();
  /// While set, what arrives is counted as filtered; what was queued before is dropped too. Once
  /// cleared, nothing that arrived before reaches the application.
  void set_drop_all(bool on);

  /// At most one recorder owns the ring; throws Error NOT_READY if there is one already.
  void attach_recorder(const std::string& name);
  void detach_recorder() noexcept;
  /// Name of the recorder that owns the ring; empty: none.
  [[nodiscard]] std::string recorder() const;
  /// Whether there is one. Any thread.
  [[nodiscard]] bool recorded() const noexcept { return recorded_.load(std::memory_order_acquire); }

  /// The poller has ended: what the ring still holds can be received, nothing follows.
  void mark_closed() noexcept;
  /// Nothing more comes, not from the stage either.
  [[nodiscard]] bool closed() const noexcept {
    return closed_.load(std::memory_order_acquire) && (stage_ == nullptr || stage_->finished());
  }

  [[nodiscard]] RxSnapshot counters() const noexcept;
  [[nodiscard]] QueueLevels levels() const noexcept;

 private:
  /// Packets, of `bytes` bytes, into the source's burst: one is open for each source, until it is
  /// full, its timeout has passed since its first packet, or somebody asks for it.
  void put_into_bursts(RxSource& source, const RxBatch& batch, std::uint64_t bytes) noexcept;
  /// For packets [first, batch.count); null: there is none.
  Burst* open_burst(RxSource& source, const RxBatch& batch, std::uint32_t first) noexcept;
  /// The source's open burst, no longer open; null: it had none.
  Burst* close_burst(RxSource& source) noexcept;
  /// Packets [first, first + n) of a batch, for which the burst has room.
  void add(Burst& burst, const RxBatch& batch, std::uint32_t first, std::uint32_t n) const noexcept;
  [[nodiscard]] std::uint64_t bytes_of(const RxBatch& batch, std::uint32_t first,
                                       std::uint32_t n) const noexcept;
  /// Give the buffers of packets [first, batch.count) back.
  void give_back(const RxBatch& batch, std::uint32_t first) const noexcept;
  [[nodiscard]] memory::BufferOwner* owner_of(const RxBatch& batch, std::size_t s) const noexcept {
    return batch.segments[s].owner != nullptr ? batch.segments[s].owner : regions_[s];
  }
  void put_into_ring(Burst* burst) noexcept;
  /// Packets that were accepted are dropped.
  void drop_held(DropReason reason, std::uint64_t n) noexcept;
  void discard_queued(DropReason reason) noexcept;
  void publish() noexcept;
  Burst* hand_to_application(Burst* burst) noexcept;
  Burst* take_from(std::uintptr_t connection);
  /// The stage's next, or null.
  Burst* receive_frames() noexcept { return stage_ == nullptr ? nullptr : stage_->receive(); }
  /// Where the configuration says that packets are. Throws as `receive`.
  Burst* move_to_regions(Burst* burst);
  /// What lies in memory that is wanted back soon, to the queue's regions; not while they are short
  /// of buffers (false).
  bool replace_lent(Burst& burst) const noexcept;

  std::vector<std::uint32_t> segment_capacity_;
  bool staged_;
  /// No burst stays open from pass to pass.
  bool at_once_;
  BurstPool* pool_;
  MpmcRing<Burst*> ring_;

  // --- Poller.
  std::unique_ptr<RxStage> stage_;
  RxSource main_source_;
  /// Taken for a source that has no open burst yet.
  Burst* spare_{nullptr};
  /// Sources that have an open burst, by the age of the burst.
  RxSource* oldest_{nullptr};
  RxSource* newest_{nullptr};
  std::uint32_t num_open_{0};
  /// There was no room in this pass.
  bool no_room_{false};
  /// `held` counts all packets that were accepted; delivered ones are subtracted where it is read.
  RxSnapshot tally_;
  bool dirty_{false};
  /// Bursts that are begun in one pass are due together.
  std::uint64_t pass_ns_{0};
  /// Of all regions.
  std::uint64_t shortages_seen_{0};
  /// In force; what `filter_wanted_` says takes effect with the pass that discards for it.
  bool filtering_{false};
  std::uint64_t discards_due_{0};
  PublishedCounters<RxSnapshot> published_;

  // --- Both sides. Each on cache lines of its own: the poller reads what changes seldom, consumers
  // write what changes with every burst.
  alignas(64) std::atomic<std::uint64_t> delivered_{0};
  alignas(64) WaitQueue ready_;
  alignas(64) std::atomic<std::uint64_t> discard_requests_{0};
  std::atomic<std::uint64_t> discards_done_{0};
  std::atomic<bool> filter_wanted_{false};
  std::atomic<bool> recorded_{false};
  std::atomic<bool> closed_{false};

  /// Of connections; not on the packet path.
  std::mutex sources_mutex_;
  std::deque<RxSource> sources_;
  std::vector<RxSource*> retired_;
  std::atomic<std::size_t> num_sources_{0};

  // --- Application.
  /// Bursts taken from the ring in search of another connection's, oldest first.
  std::mutex aside_mutex_;
  std::deque<Burst*> aside_;
  [[nodiscard]] std::deque<Burst*>::iterator aside(std::uintptr_t connection);
  std::atomic<std::size_t> num_aside_{0};
  mutable std::mutex recorder_mutex_;
  std::string recorder_;
};

}  // namespace daqiri
