#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <thread>

#include "metrics/counters.h"

using namespace daqiri;

TEST_CASE("A snapshot of a counter group is of one moment", "[metrics]") {
  CounterGroup<3> group;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !stop.load(); ++i) group.publish({i, 2 * i, 3 * i});
  });
  bool torn = false;
  for (int i = 0; i < 20000; ++i) {
    const auto values = group.read();
    torn = torn || values[1] != 2 * values[0] || values[2] != 3 * values[0];
  }
  stop = true;
  writer.join();
  REQUIRE_FALSE(torn);
}

TEST_CASE("Drop reasons have distinct names", "[metrics]") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < NUM_DROP_REASONS; ++i)
    names.insert(drop_reason_name(static_cast<DropReason>(i)));
  REQUIRE(names.size() == NUM_DROP_REASONS);
  REQUIRE(names.count("unknown") == 0);
}
