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
#include "io/io_engine.h"
#include "steering/steering.h"
#include "system/socket_events.h"

namespace daqiri::packet {

/// Steers the frames of an interface to its receive queues. The poller of the first queue reads the
/// ring; queues of other pollers get their frames handed over. Frames for recorders and reorder
/// plans stay in the ring where that is worth it; others are copied to buffers of the queue's
/// regions.
///
/// An only queue that has no room lets frames wait in the ring, and the kernel drops what the ring
/// has no room for. One of several queues drops its frames, so that the others go on; so does one
/// with reorder plans, so that these go on.
class Receiver {
 public:
  /// Of the ring: as much as the queues' regions hold, each counted once.
  static std::uint64_t ring_bytes(const std::set<const MemoryRegionConfig*>& regions) noexcept;

  /// Throws Error.
  Receiver(const Port& port, const NetworkInterface& interface);

  /// As PortIo::receive_path.
  [[nodiscard]] std::string path() const { return ring_->path(); }
  /// As PortIo::fixed_flows.
  [[nodiscard]] const char* fixed_flows() const noexcept { return ring_->fixed_flows(); }
  /// As ReceiveTraits::gathers_ns.
  [[nodiscard]] std::uint64_t gathers_ns() const noexcept { return ring_->gathers_ns(); }
  /// As ReceiveTraits::gathered.
  [[nodiscard]] bool gathered() const noexcept { return ring_->gathered(); }
  /// Readable when there may be frames.
  [[nodiscard]] int fd() const noexcept { return arrivals_.fd(); }

  // --- Poller of the first queue.

  /// As PortIo::receive, for all queues.
  std::uint32_t receive() noexcept;
  /// As PortIo::finish_receiving, for all queues.
  void finish() noexcept;

  // --- Poller of the queue.

  /// Null: it is that of the first queue.
  [[nodiscard]] HandOver* hand_over_to(const RxQueue& queue) const noexcept;

  /// After the pollers have ended.
  void stop() noexcept;

 private:
  /// How often the kernel is asked for what it has dropped.
  static constexpr std::uint64_t ASK_NS = 10'000'000;

  /// A queue, and how frames get there: one of the two is null.
  struct Target {
    RxQueue* queue;
    std::unique_ptr<Gathering> gathering;
    std::unique_ptr<HandOver> hand_over;
  };

  /// How long after its arrival a frame may be read: the kernel hands its last block over after its
  /// patience, twice that at the latest.
  [[nodiscard]] std::uint64_t late_ns() const noexcept {
    return 2'000'000 * std::uint64_t{patience_ms_} + ASK_NS;
  }
  /// False: it has to wait.
  bool take(const Frame& frame, const steering::Program& program) noexcept;
  bool put(Gathering& gathering, const Frame& frame, const steering::Verdict& verdict) noexcept;
  /// Whether frames that the queue has no room for may wait.
  [[nodiscard]] bool may_wait(const RxQueue& queue) const noexcept {
    return targets_.size() == 1 && (!queue.has_stage() || queue.recorded());
  }
  [[nodiscard]] std::uint32_t receive(const steering::Program& program) noexcept;
  /// The one that the kernel's drops are counted on.
  [[nodiscard]] const Target& accountable() const noexcept;
  void deliver_all() noexcept;
  void lose(const Target& target, const steering::Verdict& verdict, const Frame& frame,
            DropReason reason) noexcept;
  static void drop(const Target& target, DropReason reason, std::uint64_t n,
                   std::uint64_t bytes) noexcept;
  [[nodiscard]] const Target& target_for(std::uint16_t queue) const noexcept;
  [[nodiscard]] RxQueue& first() const noexcept { return *targets_.front().queue; }
  /// All that could be read when this pass began has been read.
  void note_all_read(std::uint64_t now_ns) noexcept;
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
  std::vector<Target> targets_;
  std::uint64_t asked_ns_{0};
  /// The latest look found no room for a frame; or no frame any more.
  bool refused_{false};
  bool all_read_{false};
  bool finishing_{false};
};

}  // namespace daqiri::packet
