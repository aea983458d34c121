/// Receives from a device, and steers packets to the receive queues of a port.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engines/dpdk/card_clock.h"
#include "engines/dpdk/hand_over.h"
#include "engines/dpdk/packet_pool.h"
#include "engines/dpdk/removal.h"
#include "io/io_engine.h"

namespace daqiri::dpdk {

/// Reads some of the device's queues. Used by the poller of the port's receive queues that have one
/// `cpu_core`; packets of other queues are handed over to their pollers.
class Receiver {
 public:
  /// `first`: the first queue of the poller. `queues`: those of the device. Packets are received
  /// into the buffers of `pools`: of one, or piece by piece into those of each. `clock`: stamps
  /// packets; null: none does. `removed`: see DeviceUse. `cut_at`: the device may have cut packets
  /// of this length. `buffers_ahead`: of each packet that the driver loses if they are not free
  /// when it reads it; 0: it looks for buffers first.
  Receiver(const Port& port, RxQueue& first, std::uint16_t device,
           std::vector<std::uint16_t> queues, std::vector<const PacketPool*> pools,
           const CardClock* clock, const std::atomic<bool>& removed, std::uint32_t cut_at,
           std::uint32_t buffers_ahead);

  /// The first queue of its poller.
  [[nodiscard]] const RxQueue& first() const noexcept { return first_; }
  /// Null: the queue has the same poller.
  [[nodiscard]] HandOver* hand_over_to(const RxQueue& queue) const noexcept;

  /// Returns the number of packets seen.
  std::uint32_t receive() noexcept;
  /// After the device was removed: whether `receive` still uses it. Any thread.
  [[nodiscard]] bool uses_device() const noexcept { return use_.active(); }
  /// Nothing is received any longer.
  void finish() noexcept;
  /// Free what the device still has, and no poller will read. Returns the number of packets.
  std::uint32_t drain_device() noexcept;
  /// Discard what was handed over. The pollers have ended.
  void discard_rest() noexcept;

 private:
  /// Packets that are read from the device together.
  static constexpr std::uint32_t AT_ONCE = Batch::MOST;

  struct Target {
    RxQueue& queue;
    /// Its packets stay in the buffers in which they were received; otherwise they are copied.
    bool stay;
    /// Null: the queue has the poller that reads.
    std::unique_ptr<HandOver> hand_over;
    /// Packets of fewer bytes may be taken by `take_plain`; 0: none now.
    std::uint32_t plain_below{0};
    Batch batch{};
    /// For packets that are copied.
    PacketBufferStock stock{};
  };

  [[nodiscard]] Target& target_for(std::uint16_t queue) noexcept {
    if (queue == latest_->queue.id()) return *latest_;
    return find_target(queue);
  }
  [[nodiscard]] Target& find_target(std::uint16_t queue) noexcept;
  /// The beginning of a packet with all headers that flows match, at `room` unless it is together.
  /// Null: it cannot be read.
  [[nodiscard]] std::span<const std::uint8_t> beginning_of(
      const rte_mbuf& packet, const steering::Program& program,
      std::span<std::uint8_t, steering::MOST_KEY_BYTES> room) noexcept;
  /// Whether the packet is in buffers of the target, as its queue wants it.
  [[nodiscard]] bool stays(const Target& target, const rte_mbuf& packet,
                           const steering::Verdict& verdict) const noexcept;
  /// The packet belongs to the target, or is added to those that are freed. `left`: packets that
  /// were read with it, from it on.
  void take(rte_mbuf& packet, const steering::Program& program, std::uint64_t time,
            std::uint32_t left) noexcept;
  /// The same for what most packets are: in one buffer, of a recent flow (or of none, unless
  /// `isolated`), for a queue of this poller whose packets are in one buffer, and for which there
  /// is one. Returns how many are, up to the first that is not, which `take` takes or loses. After
  /// `packets`, there are some that may be prefetched.
  std::uint32_t take_plain(std::span<rte_mbuf* const> packets, bool isolated,
                           const CardClock::ReceiveTimes& times) noexcept;
  /// The first packet, and those after it that are as it is: of the same verdict, the latest that
  /// was found, and in buffers of the target's queue. Returns how many there are, and adds their
  /// bytes to `bytes`. As `take_plain`.
  std::uint32_t keep_alike(std::span<rte_mbuf* const> packets, Target& target,
                           const steering::Verdict& verdict, const CardClock::ReceiveTimes& times,
                           std::uint64_t& bytes) noexcept;
  void tell_headers(std::uint32_t first) const noexcept;
  void lose(Target& target, DropReason reason, std::uint32_t length) noexcept;
  /// Up to about `most` packets of a queue of the device; `empty`: it has no more.
  std::uint32_t receive(std::uint16_t queue, std::uint32_t most, const steering::Program& program,
                        bool& empty) noexcept;

  RxQueue& first_;
  std::uint16_t device_;
  DeviceUse use_;
  std::vector<std::uint16_t> queues_;
  std::vector<const PacketPool*> pools_;
  /// The first of them.
  const PacketPool& pool_;
  /// Whether second pieces are on a GPU, where the CPU cannot read them.
  bool on_gpu_;
  /// It was told that headers are there.
  bool told_headers_{false};
  const CardClock* clock_;
  std::uint32_t cut_at_;
  std::uint32_t buffers_ahead_;
  steering::Steering::Reader steering_;
  steering::FlowRun run_;
  /// In the order of the port's queues.
  std::deque<Target> targets_;
  /// That of the latest packet.
  Target* latest_{nullptr};
  /// Packets that are freed together: those that were copied, and those that nobody gets.
  std::array<rte_mbuf*, AT_ONCE> done_;
  std::uint32_t num_done_{0};
};

}  // namespace daqiri::dpdk
