#include "engines/dpdk/card_clock.h"

#include <rte_alarm.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include <cstdlib>
#include <ctime>
#include <new>

#include "daqiri/error.h"
#include "engines/dpdk/eal.h"
#include "engines/dpdk/virtual_device.h"
#include "system/log.h"

namespace daqiri::dpdk {

namespace {

/// Time between the first two readings, by which opening waits. Each next one is twice as late, up
/// to the longest: the rate gets known with their distance.
constexpr std::uint64_t FIRST_PAUSE_US = 10'000;
constexpr std::uint64_t LONGEST_PAUSE_US = 100'000;
/// A reading that took longer is not used: something interrupted it.
constexpr std::uint64_t WIDEST_NS = 50'000;
constexpr int READINGS = 3;
constexpr int FIRST_TRIES = 1000;
constexpr unsigned STRANGE_READINGS = 3;
/// CLOCK_REALTIME was set.
constexpr std::int64_t SET_NS = 1'000;

}  // namespace

CardClock::CardClock(const InterfaceConfig& interface, const std::atomic<bool>& removed)
    : interface_(interface), removed_(removed) {
  const bool has_place =
      (!stamps(interface) || rte_mbuf_dyn_rx_timestamp_register(&offset_, &received_flag_) == 0) &&
      (!launches(interface) || rte_mbuf_dyn_tx_timestamp_register(&offset_, &launch_flag_) == 0);
  if (!has_place) refuse_clock("cannot give packets times: " + Reports::reason(rte_errno));
}

void CardClock::refuse_clock(const std::string& what) const {
  const char* const fix = stamps(interface_) && launches(interface_)
                              ? "set hardware_timestamps and tx.accurate_send to false, for "
                                "timestamps and launch times in software"
                          : stamps(interface_)
                              ? "set hardware_timestamps to false, for timestamps in software"
                              : "set tx.accurate_send to false, for launch times in software";
  refuse(interface_, what, fix, Status::NOT_SUPPORTED);
}

std::optional<ClockFit::Reading> CardClock::read() noexcept {
  std::uint64_t narrowest = WIDEST_NS + 1;
  ClockFit::Reading reading{};
  for (int i = 0; i < READINGS; ++i) {
    std::uint64_t ticks = 0;
    const std::uint64_t before = monotonic_ns();
    error_ = rte_eth_read_clock(device_, &ticks);
    const std::uint64_t width = monotonic_ns() - before;
    if (error_ != 0) return std::nullopt;
    if (width >= narrowest) continue;
    narrowest = width;
    reading = {.ticks = ticks, .ns = before + width / 2};
  }
  if (narrowest > WIDEST_NS) return std::nullopt;
  return reading;
}

void CardClock::begin(std::uint16_t device) {
  device_ = device;
  const auto read_once = [this] {
    for (int i = 0; i < FIRST_TRIES; ++i) {
      if (const auto reading = read()) return *reading;
      if (error_ != 0)
        refuse_clock("does not tell its clock (rte_eth_read_clock): " + Reports::reason(error_));
    }
    refuse_clock("takes more than 50 us to tell its clock (rte_eth_read_clock)");
  };
  const ClockFit::Reading first = read_once();
  const timespec pause{0, FIRST_PAUSE_US * 1000};
  nanosleep(&pause, nullptr);
  if (!fit_.begin(first, read_once())) refuse_clock("has a clock that stands still");
  ahead_ = -ahead_of_realtime(CLOCK_MONOTONIC);
  publish();
  begun_ = true;
  pause_us_ = FIRST_PAUSE_US;
  if (const int error = rte_eal_alarm_set(pause_us_, on_alarm, this); error != 0)
    refuse_clock("cannot be asked for its clock again: " + Reports::reason(error));
}

void CardClock::stop() noexcept {
  // Waits for a reading in another thread.
  if (begun_ && owns_eal()) rte_eal_alarm_cancel(on_alarm, this);
  begun_ = false;
}

void CardClock::on_alarm(void* clock) noexcept { static_cast<CardClock*>(clock)->read_again(); }

void CardClock::read_again() noexcept {
  if (removed_.load(std::memory_order_relaxed)) return;
  if (const auto reading = read()) {
    fit_.add(*reading);
    const std::int64_t ahead = -ahead_of_realtime(CLOCK_MONOTONIC);
    // What is less is the time of reading: times would jump.
    if (std::abs(ahead - ahead_) > SET_NS) ahead_ = ahead;
    publish();
  }
  if (error_ != 0) {
    warn(warned_of_error_,
         "does not tell its clock any longer (rte_eth_read_clock): its times are taken to go on at "
         "the same rate");
  }
  if (missing_.load(std::memory_order_relaxed)) {
    warn(warned_of_missing_,
         "delivers packets without its time (hardware_timestamps): they get the time at which they "
         "are read");
  }
  // After a step of CLOCK_REALTIME, until it is noticed, times may look like that.
  if (strange_.exchange(false, std::memory_order_relaxed) &&
      ++strange_readings_ >= STRANGE_READINGS) {
    warn(warned_of_strange_,
         "stamps packets with times that are not of its clock (rte_eth_read_clock): they get the "
         "time at which they are read");
  }
  pause_us_ = std::min(2 * pause_us_, LONGEST_PAUSE_US);
  rte_eal_alarm_set(pause_us_, on_alarm, this);
}

void CardClock::publish() noexcept {
  const ClockLine& line = fit_.line();
  published_.publish({line.ticks, line.ns, line.ns_per_tick, line.ticks_per_ns,
                      static_cast<std::uint64_t>(ahead_)});
}

void CardClock::warn(bool& warned, const char* text) noexcept {
  if (warned) return;
  try {
    log(LogLevel::WARN, device_of(interface_) + text, {.interface = interface_.name_, .queue = {}});
    warned = true;
  } catch (const std::bad_alloc&) {
    // Next time.
    return;
  }
}

}  // namespace daqiri::dpdk
