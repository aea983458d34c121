// Losses that a driver counts by name are those of the port.
#include <catch2/catch.hpp>

#include <cstdint>

#include "engines/dpdk/dpdk_module.h"
#include "engines/dpdk/other_process.h"
#include "session/loopback_config.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr const char* COUNTED = "a device of DPDK counts losses by name";

}  // namespace

TEST_CASE(COUNTED, "[.]") {
  const InsteadOfDpdk library("named_counters");
  auto* const lose = library.find<void(std::uint64_t, std::uint64_t)>("lose_by_name");
  NetworkConfig config = loopback_config();
  use_dpdk(config, {"net_ring0"});
  const auto session = Session::open(config);
  const PortIo& io = *session->port(0).io;
  // Not what it had counted before.
  CHECK(io.losses(0).lost_before_engine == 0);
  lose(12, 3);
  const PortSnapshot lost = io.losses(0);
  CHECK(lost.lost_card == 12);
  CHECK(lost.lost_errors == 3);
  CHECK(lost.lost_before_engine == 15);
  finish(*session);
}

TEST_CASE("losses that a driver counts by name are those of the port", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(COUNTED) == 0);
}
