#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "timing/histogram.h"

using daqiri::Histogram;

TEST_CASE("Every value lies within its bucket, to 1 part in 32", "[timing]") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t value = random() >> (random() % 64);
    const std::uint32_t bucket = Histogram::bucket_of(value);
    REQUIRE(bucket < Histogram::NUM_BUCKETS);
    const std::uint64_t edge = Histogram::upper_edge(bucket);
    REQUIRE(edge >= value);
    REQUIRE(edge - value <= value / 32 + 1);
    if (bucket > 0) REQUIRE(Histogram::upper_edge(bucket - 1) < value);
  }
}

TEST_CASE("Quantiles come from the counts", "[timing]") {
  Histogram histogram;
  REQUIRE(histogram.quantile(0.5) == 0);
  for (std::uint64_t i = 1; i <= 1000; ++i) histogram.record(i);
  REQUIRE(histogram.count() == 1000);
  REQUIRE(histogram.maximum() == 1000);
  REQUIRE(histogram.quantile(0.5) >= 500);
  REQUIRE(histogram.quantile(0.5) <= 516);
  REQUIRE(histogram.quantile(0.99) >= 990);
  REQUIRE(histogram.quantile(0.0) == 1);
  REQUIRE(histogram.quantile(1.0) >= 1000);
  histogram.reset();
  REQUIRE(histogram.count() == 0);
}

TEST_CASE("Values below powers of two are counted exactly", "[timing]") {
  std::mt19937_64 random(3);
  Histogram histogram;
  std::vector<std::uint64_t> values{0, 1, 1023, 1024, 1025, 4095, 4096};
  for (int i = 0; i < 10000; ++i) values.push_back(random() >> (random() % 64));
  for (const std::uint64_t value : values) histogram.record(value);
  for (std::uint32_t exponent = 6; exponent < 64; ++exponent) {
    const auto below = std::ranges::count_if(
        values, [&](std::uint64_t value) { return value < std::uint64_t{1} << exponent; });
    REQUIRE(histogram.count_between(0, exponent) == static_cast<std::uint64_t>(below));
    REQUIRE(histogram.count_between(0, 6) + histogram.count_between(6, exponent) ==
            static_cast<std::uint64_t>(below));
  }
}

namespace {

/// Durations from nanoseconds to days: uniform in the logarithm, with runs of equal values.
std::vector<std::uint64_t> some_durations(std::mt19937_64& random, std::size_t count) {
  std::vector<std::uint64_t> values;
  while (values.size() < count) {
    const std::uint64_t value = random() >> (16 + random() % 48);
    values.insert(values.end(), 1 + random() % 5, value);
  }
  return values;
}

/// The exact quantile: the smallest value that is not exceeded by a fraction `q` of all values.
std::uint64_t exact(const std::vector<std::uint64_t>& sorted, double q) {
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

TEST_CASE("Quantiles are those of the sorted values, to 1 part in 32", "[timing]") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::uint64_t> values = some_durations(random, 1 + random() % 3000);
    Histogram histogram;
    for (const std::uint64_t value : values) histogram.record(value);
    std::sort(values.begin(), values.end());
    REQUIRE(histogram.maximum() == values.back());
    for (const double q : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const std::uint64_t wanted = exact(values, q);
      CAPTURE(round, q, wanted);
      REQUIRE(histogram.quantile(q) >= wanted);
      REQUIRE(histogram.quantile(q) - wanted <= wanted / 32 + 1);
    }
  }
}

TEST_CASE("The largest value has a bucket", "[timing]") {
  Histogram histogram;
  histogram.record(std::numeric_limits<std::uint64_t>::max());
  REQUIRE(histogram.quantile(0.5) == std::numeric_limits<std::uint64_t>::max());
}
