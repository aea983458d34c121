/// Times of another clock, such as that of a network card, by readings of it and of this host's.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace daqiri {

/// A clock that runs evenly: one moment of it, and its rate. Conversions divide nothing.
struct ClockLine {
  /// The moment: ticks there, ns here.
  std::uint64_t ticks{0};
  std::uint64_t ns{0};
  /// With FRACTION bits after the point.
  std::uint64_t ns_per_tick{0};
  std::uint64_t ticks_per_ns{0};

  static constexpr unsigned FRACTION = 32;

  [[nodiscard]] std::uint64_t ns_at(std::uint64_t there) const noexcept {
    return ns + scaled(there - ticks, ns_per_tick);
  }
  [[nodiscard]] std::uint64_t ticks_at(std::uint64_t here) const noexcept {
    return ticks + scaled(here - ns, ticks_per_ns);
  }
  /// ns per tick.
  void set_rate(double rate) noexcept {
    constexpr double ONE = std::uint64_t{1} << FRACTION;
    ns_per_tick = static_cast<std::uint64_t>(std::llround(rate * ONE));
    ticks_per_ns = static_cast<std::uint64_t>(std::llround(ONE / rate));
  }

 private:
  /// `difference`: of either sign.
  static std::uint64_t scaled(std::uint64_t difference, std::uint64_t factor) noexcept {
    __extension__ using Wide = __int128;
    const Wide product = static_cast<Wide>(static_cast<std::int64_t>(difference)) *
                         static_cast<Wide>(static_cast<std::int64_t>(factor));
    return static_cast<std::uint64_t>(product >> FRACTION);
  }
};

/// Fits a line to readings, each a little off. The line has no gaps, so that times stay in order:
/// at a reading its rate changes, and it meets the clocks at about the next one.
class ClockFit {
 public:
  /// Both clocks at one moment.
  struct Reading {
    std::uint64_t ticks;
    std::uint64_t ns;
  };
  /// With a larger difference, one of the clocks was set.
  static constexpr std::int64_t SET_NS = 1'000'000;

  /// Returns false if the clock stands still.
  bool begin(const Reading& first, const Reading& second) noexcept {
    if (!runs(first, second)) return false;
    count_ = 0;
    keep(first);
    keep(second);
    line_.set_rate(rate_since(first, second));
    start_from(second);
    return true;
  }
  /// A later reading. Returns false if a clock was set: the line has a gap, and its rate is that of
  /// before until the next reading.
  bool add(const Reading& reading) noexcept {
    const Reading last = readings_[(count_ - 1) % KEPT];
    const auto off = static_cast<std::int64_t>(reading.ns - line_.ns_at(reading.ticks));
    if (!runs(last, reading) || std::abs(off) > SET_NS) {
      // The second time, its rate has changed, too.
      if (count_ == 1 && begin(last, reading)) return false;
      count_ = 0;
      keep(reading);
      start_from(reading);
      return false;
    }
    const Reading oldest = readings_[count_ < KEPT ? 0 : count_ % KEPT];
    keep(reading);
    start_from({.ticks = reading.ticks, .ns = line_.ns_at(reading.ticks)});
    line_.set_rate(rate_since(oldest, reading) +
                   static_cast<double>(off) / static_cast<double>(reading.ticks - last.ticks));
    return true;
  }
  [[nodiscard]] const ClockLine& line() const noexcept { return line_; }

 private:
  /// Readings that the rate is of.
  static constexpr std::uint64_t KEPT = 8;

  static bool runs(const Reading& from, const Reading& to) noexcept {
    return static_cast<std::int64_t>(to.ticks - from.ticks) > 0 &&
           static_cast<std::int64_t>(to.ns - from.ns) > 0;
  }
  static double rate_since(const Reading& from, const Reading& to) noexcept {
    return static_cast<double>(to.ns - from.ns) / static_cast<double>(to.ticks - from.ticks);
  }
  void keep(const Reading& reading) noexcept { readings_[count_++ % KEPT] = reading; }
  void start_from(const Reading& reading) noexcept {
    line_.ticks = reading.ticks;
    line_.ns = reading.ns;
  }

  ClockLine line_;
  std::array<Reading, KEPT> readings_{};
  std::uint64_t count_{0};
};

}  // namespace daqiri
