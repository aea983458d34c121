#include <catch2/catch.hpp>

#include <random>

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
