/// A transmit queue: sends the packets of bursts from the application.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "burst/burst.h"
#include "io/session_memory.h"
#include "metrics/counters.h"
#include "system/doorbell.h"
#include "system/ring.h"
#include "timing/clock.h"
#include "timing/histogram.h"

namespace daqiri {

class PortIo;
struct TransmitCompletion;

class TxQueue : public QueueBase<TxQueueConfig> {
 public:
  TxQueue(const InterfaceConfig& interface, const TxQueueConfig& config, std::uint32_t meta_buffers,
          std::shared_ptr<SessionMemory> memory);
  ~TxQueue();

  [[nodiscard]] std::uint32_t batch_size() const noexcept {
    return static_cast<std::uint32_t>(burst_size(config_));
  }

  /// Limit for one burst: the number of buffers.
  [[nodiscard]] std::uint32_t most_packets() const noexcept { return most_packets_; }

  // --- Application. Any thread.

  /// Allocate an empty burst with `num_packets` buffers per segment (1 to most_packets), in state
  /// APPLICATION. Returns NO_FREE_BURST_BUFFERS, NO_FREE_PACKET_BUFFERS or INVALID_PARAMETER on
  /// failure.
  Status allocate(std::uint32_t num_packets, Burst** burst) noexcept;
  /// Whether buffers for this many packets are free now. If not, receive queues deliver open
  /// bursts, which hold buffers.
  bool has_buffers(std::uint32_t num_packets) noexcept;
  /// Add buffers for `num_packets` to a burst that has none.
  Status fill(Burst& burst, std::uint32_t num_packets) noexcept;
  /// Queue the burst. On SUCCESS and NO_SPACE_AVAILABLE, the caller no longer owns the burst.
  Status send(Burst* burst) noexcept;
  /// Like StreamPort::unreachable.
  [[nodiscard]] const char* unreachable(std::uintptr_t connection) const noexcept;
  /// Like StreamPort::held_up_by.
  [[nodiscard]] std::string held_up_by() const;
  /// Wait until all submitted packets have left or were dropped; false on timeout or interruption.
  bool wait_idle(std::int64_t timeout_ns) noexcept;
  /// Wait until a burst may be allocated again; false on timeout or interruption.
  bool wait_free(std::int64_t timeout_ns) noexcept;
  /// Drop packets that were submitted before and have not left, counted as flushed; returns their
  /// number. The worker drops them, with StreamPort::settle. Throws Error NOT_READY,
  /// GENERIC_FAILURE.
  std::uint64_t flush();

  [[nodiscard]] TxSnapshot counters() const noexcept;
  /// All transmit queues of the session share one pool of bursts.
  [[nodiscard]] QueueLevels levels() const noexcept;
  /// ns between launch time and transmission.
  [[nodiscard]] const Histogram& lateness() const noexcept { return lateness_; }
  /// Reset the histogram; the worker does this before it sends the next packet.
  void reset_lateness() noexcept;

  // --- Transmit worker. One thread.

  /// Set how packets are sent; call before the worker starts. `keeps_buffers`: like TransmitTraits.
  void open(PortIo& io, const Clock& clock, bool keeps_buffers) noexcept {
    io_ = &io;
    clock_ = clock;
    keeps_buffers_ = keeps_buffers;
  }
  [[nodiscard]] const Clock& clock() const noexcept { return clock_; }

  /// The burst at the head of the queue, or null.
  Burst* current() noexcept;
  /// Whether bursts wait after the current one, or before the first one is taken.
  [[nodiscard]] bool anything_queued() const noexcept { return ring_.size() > 0; }
  /// Number of packets of the current burst that have left or were dropped.
  [[nodiscard]] std::uint32_t position() const noexcept { return position_; }
  void count_sent(std::uint32_t packets, std::uint64_t bytes) noexcept;
  /// The engine keeps the next packets: they count as held until `count_completed`.
  void count_kept(std::uint32_t packets) noexcept {
    position_ += packets;
    if (keeps_buffers_) current_->kept += packets;
  }
  /// Count what happened to packets that the engine kept; free what it has released.
  void count_completed(const TransmitCompletion& completion) noexcept;
  void count_dropped(DropReason reason, std::uint32_t packets) noexcept;
  void count_late() noexcept { tally_.late += 1; }
  void record_lateness(std::uint64_t ns) noexcept { lateness_.record(ns); }
  /// Whether a flush was requested and has not begun.
  [[nodiscard]] bool flush_wanted() const noexcept {
    return flushes_wanted_.load(std::memory_order_relaxed) != flushes_begun_;
  }
  /// Mark what is queued now to be dropped.
  void begin_flush() noexcept;
  /// Drop it. Returns false if a sender has not finished queueing; call again.
  bool drop_flushed() noexcept;
  void end_flush() noexcept;
  /// Release the burst when all of it has left; publish the counters.
  void end_pass() noexcept;
  /// Drop what is queued and what senders are about to queue; the queue is closed, and the engine
  /// keeps no packets.
  void discard() noexcept;

  void mark_closed() noexcept;
  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  /// Wakes the worker that serves this queue.
  Doorbell* worker_doorbell{nullptr};

 private:
  /// For a direct queue: do its work, or wait for work, at most `timeout_ns` (negative: no limit).
  /// ELSEWHERE: the queue has a worker, or another thread is doing the work; the caller waits for
  /// `timeout_ns`, which may have been reduced.
  DirectWork::Outcome work_or_wait(std::int64_t& timeout_ns) noexcept;

  std::uint32_t most_packets_{0};
  MpmcRing<Burst*> ring_;

  PortIo* io_{nullptr};
  Clock clock_;
  bool keeps_buffers_{false};
  Burst* current_{nullptr};
  std::uint32_t position_{0};
  /// Bursts that were given to the engine completely, of which it still keeps packets.
  SpscRing<Burst*> in_flight_;
  /// Without `submitted` and `held`, which are computed when it is read.
  TxSnapshot tally_;
  bool dirty_{false};
  /// Packets were completed: waiting callers must be woken.
  bool completed_{false};
  PublishedCounters<TxSnapshot> published_;
  Histogram lateness_;
  std::atomic<bool> reset_lateness_{false};
  std::atomic<std::uint32_t> flushes_wanted_{0};
  std::atomic<std::uint32_t> flushes_done_{0};
  /// Worker: flushes begun, and bursts in the ring that are still to be dropped.
  std::uint32_t flushes_begun_{0};
  std::size_t flush_left_{0};
  alignas(64) std::atomic<std::uint64_t> submitted_{0};
  std::atomic<bool> closed_{false};
  /// Rung when bursts or buffers were freed, and when packets were completed.
  WaitQueue freed_;
  /// One flush at a time, so that each returns the number of packets it dropped.
  std::mutex flush_mutex_;
};

}  // namespace daqiri
