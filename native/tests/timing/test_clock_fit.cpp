// Times of another clock.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "timing/clock_fit.h"

using daqiri::ClockFit;
using daqiri::ClockLine;

namespace {

constexpr std::uint64_t SECOND = 1'000'000'000;
/// The other clock at the beginning: beyond what a double keeps exactly.
constexpr std::uint64_t BEGIN = (std::uint64_t{1} << 61U) + 12'345;
constexpr std::uint64_t HERE = std::uint64_t{1} << 60U;

/// 125 MHz, exactly.
ClockFit::Reading at(std::uint64_t ns) { return {.ticks = BEGIN + ns / 8, .ns = HERE + ns}; }

std::int64_t difference(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::int64_t>(a - b);
}

}  // namespace

TEST_CASE("times of another clock become times here, and back", "[timing]") {
  ClockLine line{.ticks = BEGIN, .ns = HERE};
  line.set_rate(8);
  CHECK(line.ns_at(BEGIN) == HERE);
  CHECK(line.ns_at(BEGIN + 125'000'000) == HERE + SECOND);
  CHECK(line.ns_at(BEGIN - 125'000'000) == HERE - SECOND);
  CHECK(line.ticks_at(HERE + SECOND) == BEGIN + 125'000'000);
  CHECK(line.ticks_at(HERE - SECOND) == BEGIN - 125'000'000);
  // A day later.
  CHECK(line.ns_at(BEGIN + 86'400 * std::uint64_t{125'000'000}) == HERE + 86'400 * SECOND);
  // A clock in ns.
  line.set_rate(1);
  CHECK(line.ns_at(BEGIN + 1) == HERE + 1);
  CHECK(line.ticks_at(HERE + SECOND) == BEGIN + SECOND);
}

TEST_CASE("exact readings give an exact line", "[timing]") {
  ClockFit fit;
  REQUIRE(fit.begin(at(0), at(10'000'000)));
  for (std::uint64_t i = 1; i < 100; ++i) {
    REQUIRE(fit.add(at(i * SECOND)));
    CHECK(fit.line().ns_per_tick == std::uint64_t{8} << ClockLine::FRACTION);
    CHECK(fit.line().ns_at(at((i + 1) * SECOND).ticks) == at((i + 1) * SECOND).ns);
  }
}

TEST_CASE("a line has no gap where a reading is off, and meets the clocks at the next",
          "[timing]") {
  ClockFit fit;
  REQUIRE(fit.begin(at(0), at(SECOND)));
  ClockFit::Reading late = at(2 * SECOND);
  const std::uint64_t before = fit.line().ns_at(late.ticks);
  late.ns += 600;
  REQUIRE(fit.add(late));
  CHECK(fit.line().ns_at(late.ticks) == before);
  CHECK(std::abs(difference(fit.line().ns_at(late.ticks + 1), before + 8)) <= 1);
  // Of a reading that was right, it would be the next one: half of the error is in the rate of two
  // seconds.
  const ClockFit::Reading next = at(3 * SECOND);
  CHECK(std::abs(difference(fit.line().ns_at(next.ticks), next.ns + 600 + 300)) <= 1);
  REQUIRE(fit.add(next));
  const ClockFit::Reading last = at(4 * SECOND);
  CHECK(std::abs(difference(fit.line().ns_at(last.ticks), last.ns)) <= 1);
}

TEST_CASE("times stay in order and near while rates change", "[timing]") {
  ClockFit fit;
  // The clock gains 50 ppm more each second, to 1000 ppm; readings are off by up to 500 ns.
  const auto ticks_at = [](std::uint64_t ns) {
    const double s = static_cast<double>(ns) / SECOND;
    return BEGIN + static_cast<std::uint64_t>(static_cast<double>(ns) * (1 + s * 25e-6));
  };
  std::uint64_t noise = 1;
  const auto reading = [&](std::uint64_t ns) {
    noise = noise * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
    return ClockFit::Reading{.ticks = ticks_at(ns), .ns = HERE + ns + (noise >> 33U) % 1000 - 500};
  };
  REQUIRE(fit.begin(reading(0), reading(10'000'000)));
  std::uint64_t last = 0;
  std::int64_t worst = 0;
  for (std::uint64_t ms = 110; ms < 20'000; ms += 100) {
    REQUIRE(fit.add(reading(ms * 1'000'000)));
    for (std::uint64_t part = 0; part < 100; ++part) {
      const std::uint64_t ns = ms * 1'000'000 + part * 1'000'000;
      const std::uint64_t time = fit.line().ns_at(ticks_at(ns));
      REQUIRE(time > last);
      last = time;
      if (ms > 1000) worst = std::max(worst, std::abs(difference(time, HERE + ns)));
    }
  }
  CHECK(worst < 3'000);
}

TEST_CASE("after one of the clocks was set, times are right again at once", "[timing]") {
  ClockFit fit;
  REQUIRE(fit.begin(at(0), at(SECOND)));
  for (const std::int64_t step :
       {std::int64_t{37} * 125'000'000, std::int64_t{-37} * 125'000'000, std::int64_t{125'001}}) {
    ClockFit::Reading set = at(2 * SECOND);
    set.ticks += static_cast<std::uint64_t>(step);
    CHECK_FALSE(fit.add(set));
    CHECK(fit.line().ns_at(set.ticks) == set.ns);
    CHECK(fit.line().ns_at(set.ticks + 125'000'000) == set.ns + SECOND);
    ClockFit::Reading next = at(3 * SECOND);
    next.ticks += static_cast<std::uint64_t>(step);
    CHECK(fit.add(next));
    CHECK(fit.line().ns_at(next.ticks + 125'000'000) == next.ns + SECOND);
    REQUIRE(fit.begin(at(0), at(SECOND)));
  }
}

TEST_CASE("a clock may be set to another rate", "[timing]") {
  ClockFit fit;
  REQUIRE(fit.begin(at(0), at(SECOND)));
  const auto in_ns = [](std::uint64_t ns) {
    return ClockFit::Reading{.ticks = ns, .ns = HERE + ns};
  };
  CHECK_FALSE(fit.add(in_ns(2 * SECOND)));
  CHECK_FALSE(fit.add(in_ns(3 * SECOND)));
  CHECK(fit.line().ns_at(4 * SECOND) == HERE + 4 * SECOND);
  CHECK(fit.add(in_ns(4 * SECOND)));
  CHECK(fit.line().ns_at(5 * SECOND) == HERE + 5 * SECOND);
}

TEST_CASE("a clock that stands still gives no line", "[timing]") {
  ClockFit fit;
  CHECK_FALSE(fit.begin(at(0), {.ticks = BEGIN, .ns = HERE + SECOND}));
  CHECK_FALSE(fit.begin(at(SECOND), at(0)));
  REQUIRE(fit.begin(at(0), at(SECOND)));
  // Later, its rate stays.
  CHECK_FALSE(fit.add({.ticks = at(SECOND).ticks, .ns = HERE + SECOND + 100}));
  CHECK(fit.line().ns_per_tick == std::uint64_t{8} << ClockLine::FRACTION);
}
