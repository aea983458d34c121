/// The clock of a device, with which it stamps received packets and keeps launch times.
#pragma once

#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "daqiri/config.h"
#include "metrics/counters.h"
#include "timing/clock.h"
#include "timing/clock_fit.h"

namespace daqiri::dpdk {

/// Its time is read together with that of the host now and then, in a thread of DPDK. In between
/// it is computed, for threads that receive and send.
class CardClock {
 public:
  /// How long before its launch time the device gets a packet, ns.
  static constexpr std::uint64_t LEAD_NS = 1'000'000;

  /// `removed`: see DeviceUse. Throws Error if DPDK has no place for times in packets. Before the
  /// device has queues: drivers look for these places.
  CardClock(const InterfaceConfig& interface, const std::atomic<bool>& removed);
  CardClock(const CardClock&) = delete;
  CardClock& operator=(const CardClock&) = delete;
  ~CardClock() { stop(); }

  /// Whether the configuration asks for receive times, for launch times of a device.
  static bool stamps(const InterfaceConfig& interface) noexcept {
    return interface.rx_.hardware_timestamps_ && !interface.rx_.queues_.empty();
  }
  static bool launches(const InterfaceConfig& interface) noexcept {
    return interface.tx_.accurate_send_ && !interface.tx_.queues_.empty();
  }

  /// `device` has started. Takes 10 ms. Throws Error if its clock cannot be read, or stands still.
  void begin(std::uint16_t device);
  /// The device is not used any longer. Idempotent.
  void stop() noexcept;

  class ReceiveTimes;
  class Launches;

 private:
  /// Of the published line.
  enum : std::uint8_t { TICKS, NS, NS_PER_TICK, TICKS_PER_NS, AHEAD, NUM_VALUES };
  /// With CLOCK_REALTIME, and how far that is ahead of CLOCK_MONOTONIC.
  struct Now {
    ClockLine line;
    std::uint64_t ahead;
  };

  [[nodiscard]] Now now() const noexcept {
    const auto values = published_.read();
    return {.line = {.ticks = values[TICKS],
                     .ns = values[NS] + values[AHEAD],
                     .ns_per_tick = values[NS_PER_TICK],
                     .ticks_per_ns = values[TICKS_PER_NS]},
            .ahead = values[AHEAD]};
  }
  /// Both clocks together; none: it cannot be read (`error_`), or this thread was interrupted.
  [[nodiscard]] std::optional<ClockFit::Reading> read() noexcept;
  static void on_alarm(void* clock) noexcept;
  void read_again() noexcept;
  void publish() noexcept;
  /// A warning, once. `flag`: what for.
  void warn(bool& warned, const char* text) noexcept;
  [[noreturn]] void refuse_clock(const std::string& what) const;

  const InterfaceConfig& interface_;
  const std::atomic<bool>& removed_;
  int offset_{-1};
  std::uint64_t received_flag_{0};
  std::uint64_t launch_flag_{0};
  std::uint16_t device_{0};
  bool begun_{false};
  CounterGroup<NUM_VALUES> published_;

  // --- The thread that reads the clock.
  /// CLOCK_MONOTONIC: it is never set.
  ClockFit fit_;
  std::int64_t ahead_{0};
  /// errno of DPDK's function, negative; 0: it can be read.
  int error_{0};
  std::uint64_t pause_us_{0};
  bool warned_of_error_{false};
  bool warned_of_missing_{false};
  bool warned_of_strange_{false};
  /// Readings before which there were such packets.
  unsigned strange_readings_{0};

  // --- Receivers: packets had no time, or one that cannot be.
  mutable std::atomic<bool> missing_{false};
  mutable std::atomic<bool> strange_{false};
};

/// Times of packets that are read together.
class CardClock::ReceiveTimes {
 public:
  /// `clock`: null: all packets have the time at which they were read. `read`: that time,
  /// CLOCK_REALTIME ns; it is also that of packets that the device has not stamped.
  ReceiveTimes(const CardClock* clock, std::uint64_t read) noexcept : clock_(clock), read_(read) {
    if (clock != nullptr) line_ = clock->now().line;
  }
  [[nodiscard]] std::uint64_t of(const rte_mbuf& packet) const noexcept {
    return clock_ == nullptr ? read_ : stamp_of(packet);
  }
  /// The same for each of them.
  void of(std::span<rte_mbuf* const> packets, std::uint64_t* to) const noexcept {
    if (clock_ == nullptr) {
      std::fill_n(to, packets.size(), read_);
      return;
    }
    for (const rte_mbuf* packet : packets) *to++ = stamp_of(*packet);
  }

 private:
  /// Packets may wait for buffers; a time before that is not of this clock.
  static constexpr std::uint64_t LONGEST_NS = 600'000'000'000;
  /// What clocks may differ by.
  static constexpr std::uint64_t APART_NS = 1'000'000;

  [[nodiscard]] std::uint64_t stamp_of(const rte_mbuf& packet) const noexcept {
    if ((packet.ol_flags & clock_->received_flag_) == 0) {
      clock_->missing_.store(true, std::memory_order_relaxed);
      return read_;
    }
    const std::uint64_t time =
        line_.ns_at(*RTE_MBUF_DYNFIELD(&packet, clock_->offset_, const rte_mbuf_timestamp_t*));
    if (read_ + APART_NS - time <= LONGEST_NS + APART_NS) return time;
    clock_->strange_.store(true, std::memory_order_relaxed);
    return read_;
  }

  const CardClock* clock_;
  std::uint64_t read_;
  ClockLine line_;
};

/// Launch times of packets that are sent together.
class CardClock::Launches {
 public:
  /// `clock`: null: packets are sent at once.
  explicit Launches(const CardClock* clock) noexcept : clock_(clock) {
    if (clock == nullptr) return;
    const Now now = clock->now();
    line_ = now.line;
    ahead_ = now.ahead;
    now_ = monotonic_ns() + ahead_;
    // After a step of CLOCK_REALTIME, which is noticed a little later here, the device must not
    // hold a packet much longer.
    latest_ = now_ + 2 * LEAD_NS;
  }
  /// CLOCK_REALTIME, and how far it is ahead of CLOCK_MONOTONIC; of a device that keeps launch
  /// times.
  [[nodiscard]] std::uint64_t now() const noexcept { return now_; }
  [[nodiscard]] std::uint64_t ahead() const noexcept { return ahead_; }
  /// `launch`: as in bursts. One in the past is none.
  void put(rte_mbuf& packet, std::uint64_t launch) const noexcept {
    if (launch <= now_) return;
    *RTE_MBUF_DYNFIELD(&packet, clock_->offset_, rte_mbuf_timestamp_t*) =
        line_.ticks_at(std::min(launch, latest_));
    packet.ol_flags |= clock_->launch_flag_;
  }

 private:
  const CardClock* clock_;
  ClockLine line_;
  std::uint64_t ahead_{0};
  std::uint64_t now_{~std::uint64_t{0}};
  std::uint64_t latest_{0};
};

}  // namespace daqiri::dpdk
