/// From a ring of frames to the queues of its port.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engines/packet/frame_ring.h"
#include "engines/packet/interface.h"
#include "io/io_engine.h"
#include "steering/steering.h"
#include "system/socket_events.h"

namespace daqiri::packet {

/// Steers the frames of an interface to its receive queues, all of which one poller serves. Frames
/// for recorders and reorder plans stay in the ring where that is worth it; others are copied to
/// buffers of the queue's regions.
///
/// An only queue that has no room lets frames wait in the ring, and the kernel drops what the ring
/// has no room for. One of several queues drops its frames, so that the others go on; so does one
/// with reorder plans, so that these go on.
class Receiver {
 public:
  /// Throws Error.
  Receiver(const Port& port, const NetworkInterface& interface);

  /// As PortIo::receive_path.
  [[nodiscard]] std::string path() const { return ring_->path(); }
  /// As PortIo::fixed_flows.
  [[nodiscard]] const char* fixed_flows() const noexcept { return ring_->fixed_flows(); }
  /// As ReceiveTraits::gathers_ns.
  [[nodiscard]] std::uint64_t gathers_ns() const noexcept { return ring_->gathers_ns(); }
  /// Readable when there may be frames.
  [[nodiscard]] int fd() const noexcept { return arrivals_.fd(); }

  // --- Poller.

  /// As PortIo::receive, for all queues.
  std::uint32_t receive() noexcept;
  /// As PortIo::finish_receiving, for all queues.
  void finish() noexcept;

  /// After the poller has ended.
  void stop() noexcept { ring_->stop(); }

 private:
  /// Packets of one flow order for one queue, to be delivered together.
  struct Gathered {
    static constexpr std::uint32_t MOST = 64;

    explicit Gathered(RxQueue& to) : queue(&to) {}

    RxQueue* queue;
    std::uint32_t count{0};
    /// More than so many are not taken.
    std::uint32_t room{0};
    /// They stay in the ring.
    bool kept{false};
    /// What came before this time, CLOCK_REALTIME ns, is discarded: the kernel had it, and the
    /// poller did not, when that was asked for. Until CLOCK_MONOTONIC ns.
    std::uint64_t discard_before{0};
    std::uint64_t discard_until{0};
    DropReason discarded_as{DropReason::FLUSHED};
    std::array<std::array<std::uint32_t, MOST>, MAX_NUM_SEGS> buffers;
    std::array<std::array<void*, MOST>, MAX_NUM_SEGS> data;
    std::array<std::array<std::uint32_t, MOST>, MAX_NUM_SEGS> lengths;
    std::array<FlowId, MOST> flows;
    std::array<std::uint64_t, MOST> times;
  };

  /// False: it has to wait.
  bool take(const Frame& frame, const steering::Program& program) noexcept;
  bool put(Gathered& gathered, const Frame& frame, const steering::Verdict& verdict) noexcept;
  /// Whether frames that the queue has no room for may wait.
  [[nodiscard]] bool may_wait(const RxQueue& queue) const noexcept {
    return gathered_.size() == 1 && (!queue.has_stage() || queue.recorded());
  }
  /// Discard what is to be discarded, and what the kernel had when that was asked for.
  void note_discards(std::uint64_t now_ns) noexcept;
  [[nodiscard]] std::uint32_t receive(const steering::Program& program) noexcept;
  /// The one that the kernel's drops are counted on.
  [[nodiscard]] RxQueue& accountable() const noexcept;
  void deliver(Gathered& gathered) noexcept;
  void deliver_all() noexcept;
  void lose(RxQueue& queue, const steering::Verdict& verdict, const Frame& frame,
            DropReason reason) noexcept;
  [[nodiscard]] Gathered& gathered_for(std::uint16_t queue) noexcept;
  /// Take in what the kernel has counted, and what is wrong with the interface.
  void ask_kernel() noexcept;

  std::string interface_;
  std::string address_;
  std::uint32_t patience_ms_;
  steering::Steering::Reader steering_;
  steering::FlowTally& tally_;
  std::shared_ptr<FrameRing> ring_;
  /// A ring's socket is readable for poll(2) as long as the block before the next one is in use.
  SocketEvents arrivals_;
  /// As the port's queues.
  std::vector<std::unique_ptr<Gathered>> gathered_;
  std::uint64_t asked_ns_{0};
  /// The latest frame found no room.
  bool refused_{false};
  bool finishing_{false};
};

}  // namespace daqiri::packet
