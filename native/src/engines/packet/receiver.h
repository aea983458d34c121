/// Reads a ring of frames and delivers them to the queues of the port.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engines/packet/frame_ring.h"
#include "engines/packet/gathering.h"
#include "engines/packet/hand_over.h"
#include "engines/packet/interface.h"
#include "engines/packet/receive_path.h"
#include "io/io_engine.h"
#include "steering/steering.h"
#include "system/socket_events.h"

namespace daqiri::packet {

/// How a frame gets from the kernel to the application:
///
///     kernel          its program chooses a ring (fanout.h) or passes the frame by (xdp_program.h)
///       FrameRing     one per core that reads: ReceiveRing (AF_PACKET), or XdpRing (AF_XDP)
///     Receiver        thread: the poller of the ring's first queue
///       Program         chooses the queue and the flow, and what is removed
///       Gathering       keeps the frame in the ring, or copies it to buffers of a region
///       HandOver        instead, for a queue of another poller, whose thread goes on from here
///     RxQueue::deliver
///       RxStage         reorder plans take the packets of their flows
///       burst           all others, until it is full or its timeout has passed
///     RxQueue::receive  thread: the application's, or a recorder's
///     Burst::release    BufferOwner::give: the buffer is free again
///
/// Steers the frames of a ring to the receive queues of a port. A poller of these queues reads the
/// ring, and passes frames to queues of other pollers. Frames for recorders and reorder plans stay
/// in the ring if that is worth it; others are copied to buffers of the queue's regions.
///
/// If the only queue has no space, frames wait in the ring, and the kernel drops frames that do not
/// fit. If there are several queues, a full one drops its frames, so that the others continue; so
/// does one with reorder plans, so that these continue.
class Receiver {
 public:
  /// Size of the ring: the size of the queues' regions, each counted once.
  static std::uint64_t ring_bytes(const std::set<const MemoryRegionConfig*>& regions) noexcept;
  /// Opens the rings of a port as configured, and a receiver for each. Throws Error.
  static std::vector<std::unique_ptr<Receiver>> open(const Port& port,
                                                     const NetworkInterface& interface);

  /// `alone`: there is no other ring.
  /// Throws Error.
  Receiver(const Port& port, const NetworkInterface& interface, std::shared_ptr<FrameRing> ring,
           const Reader& reader, bool alone, std::uint32_t patience_ms);

  /// See PortIo::receive_path.
  [[nodiscard]] std::string path() const { return ring_->path(); }
  /// See FrameRing::takes_every_frame.
  [[nodiscard]] bool takes_every_frame() const noexcept { return ring_->takes_every_frame(); }
  /// See FrameRing::in_driver.
  [[nodiscard]] bool in_driver() const noexcept { return ring_->in_driver(); }
  /// See steering::InstalledFlow::offload.
  [[nodiscard]] std::string_view offload() const noexcept { return ring_->offload(); }
  /// See PortIo::fixed_flows.
  [[nodiscard]] const char* fixed_flows() const noexcept { return ring_->fixed_flows(); }
  /// See ReceiveTraits::gathers_ns.
  [[nodiscard]] std::uint64_t gathers_ns() const noexcept { return ring_->gathers_ns(); }
  /// See ReceiveTraits::gathered.
  [[nodiscard]] bool gathered() const noexcept { return ring_->gathered(); }
  /// Tells when there may be frames.
  [[nodiscard]] Readiness ready() const noexcept { return Readiness(arrivals_); }

  /// The first queue of the poller that reads the ring.
  [[nodiscard]] RxQueue& first() const noexcept { return first_; }

  // --- Poller of the first queue.

  /// Like PortIo::receive, for all queues.
  std::uint32_t receive() noexcept;
  /// Like PortIo::finish_receiving, for all queues.
  void finish() noexcept;

  // --- Poller of the queue.

  /// Null: the queue has the poller that reads the ring.
  [[nodiscard]] HandOver* hand_over_to(const RxQueue& queue) const noexcept;

  /// Call after the pollers have ended.
  void stop() noexcept;

 private:
  /// How often to query the kernel's drop counters.
  static constexpr std::uint64_t ASK_NS = 10'000'000;

  /// A queue and the path of its frames: one of the two pointers is null.
  struct Target {
    RxQueue* queue;
    std::unique_ptr<Gathering> gathering;
    std::unique_ptr<HandOver> hand_over;
  };

  /// How long after its arrival a frame may be read: the kernel releases its last block after the
  /// patience, at most twice that.
  [[nodiscard]] std::uint64_t late_ns() const noexcept {
    return 2'000'000 * std::uint64_t{patience_ms_} + ASK_NS;
  }
  /// Returns false if the frame must wait.
  bool take(const Frame& frame, const steering::Program& program) noexcept;
  bool put(Gathering& gathering, const Frame& frame, const steering::Verdict& verdict) noexcept;
  /// Whether frames may wait if the queue has no space.
  [[nodiscard]] bool may_wait(const RxQueue& queue) const noexcept {
    return targets_.size() == 1 && (!queue.has_stage() || queue.recorded());
  }
  [[nodiscard]] std::uint32_t receive(const steering::Program& program) noexcept;
  /// The queue on which the kernel's drops are counted.
  [[nodiscard]] const Target& accountable() const noexcept;
  void deliver_all() noexcept;
  void lose(const Target& target, const steering::Verdict& verdict, const Frame& frame,
            DropReason reason) noexcept;
  static void drop(const Target& target, DropReason reason, std::uint64_t n,
                   std::uint64_t bytes) noexcept;
  [[nodiscard]] const Target& target_for(std::uint16_t queue) const noexcept;
  /// All frames that were readable when this pass began have been read.
  void note_all_read(std::uint64_t now_ns) noexcept;
  /// Query the kernel's drop counters and the state of the interface.
  void ask_kernel() noexcept;
  // Once.
  void warn_of_uncounted_drops() noexcept;
  void warn_of_kernel_times() noexcept;

  std::string interface_;
  std::string address_;
  RxQueue& first_;
  bool alone_;
  std::uint32_t patience_ms_;
  steering::Steering::Reader steering_;
  steering::FlowTally& tally_;
  std::shared_ptr<FrameRing> ring_;
  /// Edge-triggered, because for poll(2) a ring's socket is readable while the block before the
  /// next one is in use.
  SocketEvents arrivals_;
  /// In the order of the port's queues.
  std::vector<Target> targets_;
  std::uint64_t asked_ns_{0};
  /// In the latest pass, there was no space for a frame; all frames were read.
  bool refused_{false};
  bool all_read_{false};
  bool finishing_{false};
  bool warned_{false};
  bool warned_of_times_{false};
};

}  // namespace daqiri::packet
