// Receive times and launch times by the clock of a device.
#include <catch2/catch.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "daqiri/error.h"
#include "engines/dpdk/dpdk_module.h"
#include "engines/dpdk/other_process.h"
#include "log_taker.h"
#include "session/loopback_config.h"
#include "session/single_packets.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr const char* STAMPED = "a device of DPDK stamps packets";
constexpr const char* LAUNCHED = "a device of DPDK is given launch times";
constexpr const char* PACED = "a device of DPDK paces";
constexpr const char* REFUSED = "a device of DPDK has no times";

/// 156.25 MHz, 80 ppm too fast.
constexpr double TICKS_PER_NS = 0.15625 * 1.00008;
constexpr std::uint64_t BEGIN = std::uint64_t{1} << 50U;
constexpr std::uint64_t MS = 1'000'000;
/// What times may be off by on a busy machine. Without the clock, they are off by much more.
constexpr std::int64_t NEAR_NS = MS;

std::int64_t distance(std::uint64_t a, std::uint64_t b) {
  return std::abs(static_cast<std::int64_t>(a - b));
}

/// The device whose clock and packets the library has.
struct Card {
  InsteadOfDpdk library{"card_clock"};
  void (*offer)(bool, bool) = library.find<void(bool, bool)>("offer");
  void (*asked_for)(bool*, bool*) = library.find<void(bool*, bool*)>("asked_for");
  void (*set_clock)(double, std::uint64_t,
                    int) = library.find<void(double, std::uint64_t, int)>("set_clock");
  bool (*wait_for_readings)(unsigned) = library.find<bool(unsigned)>("wait_for_readings");
  std::uint64_t (*time_at)(std::uint64_t) = library.find<std::uint64_t(std::uint64_t)>("card_time");
  void (*stamp_with)(bool, std::uint64_t, std::uint64_t) =
      library.find<void(bool, std::uint64_t, std::uint64_t)>("stamp_with");
  bool (*launch_of)(unsigned,
                    std::uint64_t*) = library.find<bool(unsigned, std::uint64_t*)>("launch_of");

  [[nodiscard]] std::pair<bool, bool> asked() const {
    std::pair<bool, bool> both;
    asked_for(&both.first, &both.second);
    return both;
  }
};

NetworkConfig config_of(bool stamps, bool launch_times) {
  NetworkConfig config = loopback_config();
  use_dpdk(config, {"net_ring0"});
  config.log_level_ = LogLevel::WARN;
  config.ifs_[0].rx_.hardware_timestamps_ = stamps;
  config.ifs_[0].tx_.accurate_send_ = launch_times;
  return config;
}

/// Sends packets to a queue and returns their receive times.
std::vector<std::uint64_t> times_of(Session& session, int queue, std::size_t count) {
  REQUIRE(send_frames(session.tx_queue(0, 0), static_cast<std::uint16_t>(5000 + queue), 0,
                      static_cast<std::uint32_t>(count)));
  std::vector<std::uint64_t> times;
  while (times.size() < count) {
    Burst* const burst = next_burst(session.rx_queue(0, queue));
    times.insert(times.end(), burst->timestamps, burst->timestamps + burst->num_packets());
    burst->release();
  }
  return times;
}

/// Does something until the log has a line; whether it has that once.
template <typename Act>
bool warned(LogTaker& log, const std::string& text, Act&& act) {
  const std::uint64_t end = monotonic_ns() + PATIENCE_NS;
  while (log.lines_with(text) == 0 && monotonic_ns() < end) act();
  act();
  return log.lines_with(text) == 1;
}

std::string no_times(const NetworkConfig& config) {
  try {
    static_cast<void>(Session::open(config));
  } catch (const Error& error) {
    CHECK(error.status() == Status::NOT_SUPPORTED);
    return error.what();
  }
  return "no refusal";
}

}  // namespace

TEST_CASE(STAMPED, "[.]") {
  const Card card;
  card.offer(true, true);
  card.set_clock(TICKS_PER_NS, BEGIN, 0);
  NetworkConfig config = config_of(true, false);
  // Its packets are handed over.
  config.ifs_[0].rx_.queues_[1].common_.cpu_core_ = "0";
  LogTaker log;
  const auto session = Session::open(config);
  CHECK(card.asked() == std::pair{true, false});
  REQUIRE(card.wait_for_readings(10));
  const auto check_times = [&] {
    for (const int queue : {0, 1}) {
      constexpr std::uint64_t APART = 20 * MS;
      std::uint64_t received = realtime_ns() - 5000 * MS;
      const std::uint64_t first = card.time_at(received);
      card.stamp_with(true, first, card.time_at(received + APART) - first);
      const std::vector<std::uint64_t> times = times_of(*session, queue, 200);
      CHECK(times.size() == 200);
      // The clock is read meanwhile.
      for (const std::uint64_t time : times) {
        CHECK(distance(time, received) < NEAR_NS);
        received += APART;
      }
    }
  };
  check_times();
  // Such as by PTP, in ns from now on.
  card.set_clock(1, 1'900'000'000 * std::uint64_t{1'000'000'000}, 0);
  REQUIRE(card.wait_for_readings(10));
  check_times();
  // It cannot be read for a while.
  card.set_clock(TICKS_PER_NS, BEGIN, -EIO);
  CHECK(warned(log, "device 'net_ring0' does not tell its clock any longer (rte_eth_read_clock)",
               std::this_thread::yield));
  card.set_clock(TICKS_PER_NS, BEGIN, 0);
  REQUIRE(card.wait_for_readings(10));
  check_times();
  CHECK(log.lines_with("without its time") == 0);
  CHECK(log.lines_with("not of its clock") == 0);
  for (const auto& [given, text] :
       {std::pair{false, "device 'net_ring0' delivers packets without its time"},
        {true, "device 'net_ring0' stamps packets with times that are not of its clock"}}) {
    // Of another clock: ns since 1970.
    card.stamp_with(given, realtime_ns(), 0);
    CHECK(warned(log, text, [&] {
      const std::uint64_t before = realtime_ns();
      for (const std::uint64_t time : times_of(*session, 0, 10))
        CHECK((time >= before && time <= realtime_ns()));
    }));
  }
  finish(*session);
  // At any moment between readings.
  for (int i = 0; i < 20; ++i) finish(*Session::open(config));
}

TEST_CASE(LAUNCHED, "[.]") {
  const Card card;
  card.offer(true, true);
  card.set_clock(TICKS_PER_NS, BEGIN, 0);
  const auto session = Session::open(config_of(false, true));
  CHECK(card.asked() == std::pair{false, true});
  TxQueue& tx = session->tx_queue(0, 0);
  CHECK(session->port(0).io->launch_times(tx) == "device net_ring0");
  REQUIRE(card.wait_for_readings(10));
  unsigned sent = 0;
  const auto send_one = [&](std::uint64_t launch) {
    REQUIRE(send_frames(tx, 5000, 0, 1, launch));
    REQUIRE(tx.wait_idle(PATIENCE_NS));
    std::uint64_t ticks = 0;
    REQUIRE(card.launch_of(sent++, &ticks));
    return ticks;
  };
  // None, and one that has passed.
  CHECK(send_one(0) == 0);
  CHECK(send_one(realtime_ns() - MS) == 0);
  // On a busy machine, the worker may get to one too late.
  unsigned kept = 0;
  const std::uint64_t end = monotonic_ns() + PATIENCE_NS;
  while (kept < 5 && monotonic_ns() < end) {
    const std::uint64_t launch = realtime_ns() + 5 * MS;
    const std::uint64_t ticks = send_one(launch);
    if (ticks == 0) continue;
    ++kept;
    const auto off = static_cast<std::int64_t>(ticks - card.time_at(launch));
    CHECK(std::abs(static_cast<double>(off)) / TICKS_PER_NS < 100'000);
  }
  CHECK(kept == 5);
  CHECK(receive_numbers(session->rx_queue(0, 0), sent).size() == sent);
  // The device has them before their launch times, and none is late.
  CHECK(tx.counters().sent == sent);
  finish(*session);
}

TEST_CASE(PACED, "[.]") {
  const Card card;
  card.offer(true, true);
  card.set_clock(TICKS_PER_NS, BEGIN, 0);
  NetworkConfig config = config_of(false, true);
  // A packet of 1000 bytes takes 80 us.
  config.ifs_[0].tx_.queues_[0].pacing_mbps_ = 100;
  const auto session = Session::open(config);
  REQUIRE(card.wait_for_readings(10));
  TxQueue& tx = session->tx_queue(0, 0);
  constexpr unsigned COUNT = 1000;
  REQUIRE(send_frames(tx, 5000, 0, COUNT, 0, 0, 1000));
  REQUIRE(tx.wait_idle(PATIENCE_NS));
  constexpr double GAP = 80'000 * TICKS_PER_NS;
  unsigned timed = 0;
  std::uint64_t before = 0;
  for (unsigned i = 0; i < COUNT; ++i) {
    std::uint64_t ticks = 0;
    REQUIRE(card.launch_of(i, &ticks));
    // The first one, and those that came too late for their time, leave at once.
    timed += ticks == 0 ? 0 : 1;
    // The rate of the clock gets known better meanwhile.
    if (before != 0 && ticks != 0)
      CHECK(std::abs(static_cast<double>(ticks - before) / GAP - 1) < 0.01);
    before = ticks;
  }
  // In each millisecond, twelve follow the one that leaves at once.
  CHECK(timed > COUNT / 2);
  CHECK(receive_numbers(session->rx_queue(0, 0), COUNT).size() == COUNT);
  CHECK(tx.counters().sent == COUNT);
  finish(*session);
}

TEST_CASE(REFUSED, "[.]") {
  const Card card;
  card.set_clock(TICKS_PER_NS, BEGIN, 0);
  const std::string device = "interface 'port0': device 'net_ring0' ";
  CHECK(no_times(config_of(true, false)) ==
        device +
            "does not stamp received packets (hardware_timestamps: true); set it to false, "
            "for timestamps in software");
  CHECK(no_times(config_of(false, true)) ==
        device +
            "does not keep launch times (tx.accurate_send: true); set it to false, for launch "
            "times in software");
  card.offer(true, true);
  card.set_clock(TICKS_PER_NS, BEGIN, -ENOTSUP);
  CHECK(no_times(config_of(true, false)) ==
        device +
            "does not tell its clock (rte_eth_read_clock): Operation not supported; set "
            "hardware_timestamps to false, for timestamps in software");
  CHECK(no_times(config_of(false, true)) ==
        device +
            "does not tell its clock (rte_eth_read_clock): Operation not supported; set "
            "tx.accurate_send to false, for launch times in software");
  card.set_clock(0, BEGIN, 0);
  CHECK(no_times(config_of(true, true)) ==
        device +
            "has a clock that stands still; set hardware_timestamps and tx.accurate_send to "
            "false, for timestamps and launch times in software");
  // Without them, nothing is asked of the device.
  const auto session = Session::open(config_of(false, false));
  CHECK(card.asked() == std::pair{false, false});
  CHECK(session->port(0).io->launch_times(session->tx_queue(0, 0)) == "worker");
  finish(*session);
}

TEST_CASE("receive times are those of the device", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(STAMPED) == 0);
}

TEST_CASE("the device keeps launch times", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(LAUNCHED) == 0);
}

TEST_CASE("the device paces by launch times", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(PACED) == 0);
}

TEST_CASE("a device without times or without a clock is refused", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(REFUSED) == 0);
}
