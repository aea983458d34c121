/// A receive queue: batching on the poller's side, bursts on the application's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "burst/burst.h"
#include "io/session_memory.h"
#include "metrics/counters.h"
#include "system/doorbell.h"
#include "system/ring.h"

namespace daqiri {

/// A received packet whose data already lie in buffers of the queue's regions.
struct ReceivedPacket {
  std::uint32_t buffers[MAX_NUM_SEGS]{NO_BUFFER, NO_BUFFER, NO_BUFFER, NO_BUFFER};
  std::uint32_t lengths[MAX_NUM_SEGS]{};
  FlowId flow{0};
  std::uint64_t timestamp{0};
};

/// Received packets of one channel, flow and arrival: all are as long as the first, but for the
/// last.
struct ReceivedRun {
  std::uint32_t count{0};
  /// By segment: the buffers of each packet.
  const std::uint32_t* buffers[MAX_NUM_SEGS]{};
  std::uint32_t lengths[MAX_NUM_SEGS]{};
  std::uint32_t last_lengths[MAX_NUM_SEGS]{};
  FlowId flow{0};
  std::uint64_t timestamp{0};
};

/// Packets of one source: the whole queue, or one peer of a socket.
///
/// The poller fills `open` and pushes full bursts to the ring; consumers pop.
struct Channel {
  Channel(std::size_t ring_capacity, std::uintptr_t connection, const BurstEnds& both)
      : ring(ring_capacity), connection_id(connection), ends(both) {}
  MpmcRing<Burst*> ring;
  /// Changes when the peer is gone and all that it sent was taken.
  std::atomic<std::uintptr_t> connection_id;
  Burst* open{nullptr};
  /// Of the next packet; kept by engines whose channels are byte streams.
  StreamPosition stream;
  /// Of every packet; kept by engines whose channels are peers that send datagrams.
  BurstEnds ends;
};

class RxQueue {
 public:
  RxQueue(const InterfaceConfig& interface, const RxQueueConfig& config, std::uint32_t meta_buffers,
          std::shared_ptr<SessionMemory> memory);
  RxQueue(const RxQueue&) = delete;
  RxQueue& operator=(const RxQueue&) = delete;
  ~RxQueue();

  [[nodiscard]] const RxQueueConfig& config() const noexcept { return config_; }
  [[nodiscard]] std::uint16_t port_id() const noexcept { return port_id_; }
  [[nodiscard]] std::uint16_t id() const noexcept {
    return static_cast<std::uint16_t>(config_.id_);
  }
  [[nodiscard]] int num_segments() const noexcept { return static_cast<int>(regions_.size()); }
  [[nodiscard]] memory::MemoryRegion& region(int segment) const noexcept {
    return *regions_[static_cast<std::size_t>(segment)];
  }
  /// Bytes that segment `s` takes of a packet (split boundary, buffer size).
  [[nodiscard]] std::uint32_t segment_capacity(int segment) const noexcept {
    return segment_capacity_[static_cast<std::size_t>(segment)];
  }
  [[nodiscard]] std::uint32_t max_packet_size() const noexcept { return max_packet_size_; }
  [[nodiscard]] std::uint32_t ring_capacity() const noexcept { return ring_capacity_; }

  // --- Poller. One thread.

  /// Take the packet into the open burst of `channel`; hand the burst over when it is full. A
  /// packet for which there is no burst, or a burst for which the ring has no room, is dropped and
  /// counted.
  void deliver(Channel& channel, const ReceivedPacket& packet) noexcept;
  /// As above, of several packets at once.
  void deliver_run(Channel& channel, const ReceivedRun& run) noexcept;
  /// Count `n` packets that never reached a buffer.
  void drop(DropReason reason, std::uint64_t n, std::uint64_t bytes = 0) noexcept;
  /// Count `n` delivered packets that were cut to their buffers.
  void count_truncated(std::uint32_t n = 1) noexcept { tally_.truncated += n; }
  /// Hand over open bursts whose timeout has passed. Returns CLOCK_MONOTONIC ns of the next one
  /// due, 0: none.
  std::uint64_t flush_expired(std::uint64_t now_ns) noexcept;
  /// Hand over every open burst (close).
  void flush_open() noexcept;
  /// Before and after the engine's part of a poll pass: take in flush and drop-all requests; carry
  /// them out and publish the counters.
  void begin_pass() noexcept;
  void end_pass() noexcept;

  // For engines whose source can wait, so that it need not be dropped.

  /// Packets that `deliver` will take into `channel` for sure. At most one burst; 0: no burst, or
  /// no room in the ring. With several channels, one whose consumer is slow leaves half of what is
  /// free to the others.
  std::uint32_t room(Channel& channel) noexcept;
  /// Hand over the open burst, if there is one.
  void finish(Channel& channel) noexcept;
  /// In this pass, what the source holds is flushed.
  [[nodiscard]] bool flushing() const noexcept {
    return flush_due_ != flushes_done_.load(std::memory_order_relaxed);
  }

  /// The channel of packets without a connection.
  Channel& main_channel() noexcept { return *channels_[0].load(std::memory_order_relaxed); }
  /// A new channel for a peer; null when there are MAX_CHANNELS already. One thread at a time,
  /// which need not be the poller (a connection that the application makes).
  Channel* add_channel(std::uintptr_t connection_id, const BurstEnds& ends = {});
  /// Give the channel of a peer to another (0: to none, for the time being). What it holds moves to
  /// the main channel, and keeps its connection id. False, and the channel stays as it is, when
  /// there is no room for that. Poller.
  bool reassign(Channel& channel, std::uintptr_t connection_id, const BurstEnds& ends) noexcept;

  // --- Other engine threads (a transmit worker that plays the NIC): counted by the poller's next
  // pass.

  struct WireDrops {
    std::atomic<std::uint64_t> packets{0};
    std::atomic<std::uint64_t> bytes{0};
  };
  void drop_on_wire(DropReason reason, std::uint64_t bytes) noexcept;
  /// Wakes the poller that serves this queue.
  Doorbell* poller_doorbell{nullptr};

  // --- Application. Any thread.

  /// The next burst, or null. Never blocks. State APPLICATION; release() gives it back.
  Burst* receive() noexcept;
  /// As above, of one connection. Throws Error INVALID_PARAMETER for an unknown one.
  Burst* receive_from(std::uintptr_t connection_id);
  /// Whether packets of this connection have a ring of their own here.
  [[nodiscard]] bool has_connection(std::uintptr_t connection_id) const noexcept;
  /// Wait until a burst may be ready, for at most `timeout_ns`. Returns false when interrupted by a
  /// signal.
  bool wait(std::int64_t timeout_ns) noexcept;
  Doorbell& doorbell() noexcept { return doorbell_; }

  /// Drop what is queued, counted as flushed; done by the poller. Waits until done.
  void request_flush();
  /// While set, what arrives is counted as filtered; what was queued before is dropped too. Once
  /// cleared, nothing that arrived before reaches the application.
  void set_drop_all(bool on);

  /// One recorder or nobody owns the ring; throws Error NOT_READY when it is taken.
  void attach_recorder(const std::string& name);
  void detach_recorder() noexcept;
  /// Name of the recorder that owns the ring; empty: none. Applications look here before they
  /// receive.
  [[nodiscard]] std::string recorder() const;

  /// The poller has ended: what the ring still holds can be received, nothing follows.
  void mark_closed() noexcept;
  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }

  [[nodiscard]] RxSnapshot counters() const noexcept;
  /// The rings of all channels together.
  [[nodiscard]] QueueLevels levels() const noexcept;

  static constexpr std::size_t MAX_CHANNELS = 1024;

 private:
  struct Tally {
    std::uint64_t received{0};
    std::uint64_t received_bytes{0};
    /// In bursts that were pushed to a ring and not flushed from it.
    std::uint64_t enqueued{0};
    std::uint64_t open{0};
    std::uint64_t bursts{0};
    std::uint64_t truncated{0};
    std::uint64_t ring_high_water{0};
    DropCounts dropped{};
  };
  static constexpr std::size_t TALLY_SIZE = 7 + NUM_DROP_REASONS;

  Burst* take_burst() noexcept;
  Burst* begin_burst(Channel& channel) noexcept;
  void hand_over(Channel& channel) noexcept;
  void flush_all(DropReason reason) noexcept;
  void collect_wire_drops() noexcept;
  void publish() noexcept;
  void await_flush();
  Burst* take_from(Channel& channel) noexcept;
  [[nodiscard]] bool anything_ready() const noexcept;

  RxQueueConfig config_;
  std::uint16_t port_id_;
  std::shared_ptr<SessionMemory> memory_;
  std::vector<memory::MemoryRegion*> regions_;
  std::vector<std::uint32_t> segment_capacity_;
  std::uint32_t max_packet_size_{0};
  std::uint32_t ring_capacity_;
  BurstPool* pool_;

  std::array<std::atomic<Channel*>, MAX_CHANNELS> channels_{};
  std::atomic<std::size_t> num_channels_{0};
  std::atomic<std::size_t> next_channel_{0};
  /// Held while a channel changes its peer, and while bursts of one peer are taken.
  std::mutex reassigning_;

  Tally tally_;
  bool dirty_{false};
  /// Taken for a channel that has no burst yet.
  Burst* spare_{nullptr};
  /// Requests that the present pass carries out.
  std::uint64_t flush_due_{0};
  CounterGroup<TALLY_SIZE> published_;
  std::array<WireDrops, NUM_DROP_REASONS> wire_drops_;
  std::array<std::uint64_t, NUM_DROP_REASONS> wire_drops_seen_{};
  std::array<std::uint64_t, NUM_DROP_REASONS> wire_bytes_seen_{};
  alignas(64) std::atomic<std::uint64_t> delivered_{0};

  Doorbell doorbell_;
  std::atomic<std::uint64_t> flush_requests_{0};
  std::atomic<std::uint64_t> flushes_done_{0};
  /// Packets that arrived before these times (port clock) are dropped as filtered, as flushed.
  static constexpr std::uint64_t FILTER_ALL = UINT64_MAX;
  std::atomic<std::uint64_t> filter_before_ns_{0};
  std::atomic<std::uint64_t> flush_before_ns_{0};
  std::atomic<bool> closed_{false};
  mutable std::mutex recorder_mutex_;
  std::string recorder_;
};

}  // namespace daqiri
