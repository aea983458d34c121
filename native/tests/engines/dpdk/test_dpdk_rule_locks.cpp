// A card takes its time for rules; meanwhile, nobody waits for what else it tells.
#include <catch2/catch.hpp>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "engines/dpdk/dpdk_module.h"
#include "engines/dpdk/other_process.h"
#include "session/flow_changes.h"
#include "session/loopback_config.h"
#include "session/snapshot.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr const char* HELD_RULES = "rules of DPDK are held up";
constexpr std::chrono::seconds LONGEST{20};

std::vector<FlowRuleConfig> rules(std::uint16_t count) {
  std::vector<FlowRuleConfig> all(count);
  for (std::uint16_t i = 0; i < count; ++i) {
    all[i].name_ = "rule" + std::to_string(i);
    all[i].match_.udp_dst_ = static_cast<std::uint16_t>(10'000 + i);
  }
  return all;
}

}  // namespace

TEST_CASE(HELD_RULES, "[.]") {
  const InsteadOfDpdk library("held_rules");
  auto* const hold = library.find<void(bool)>("hold_rules");
  auto* const wait_for_rules = library.find<bool(unsigned)>("wait_for_rules");
  NetworkConfig config = loopback_config();
  use_dpdk(config, {"net_ring0"});
  config.ifs_[0].rx_.dynamic_flow_capacity_ = 1000;
  const auto session = Session::open(config);
  hold(true);
  auto added =
      std::async(std::launch::async, [&] { return session->flow_changes().add(0, rules(1000)); });
  // The first of them.
  const bool begun = wait_for_rules(1);
  // Or the end of this test would wait for those that are held.
  if (!begun) hold(false);
  REQUIRE(begun);
  auto read = std::async(std::launch::async, [&] {
    const PortIo& io = *session->port(0).io;
    static_cast<void>(SessionSnapshot::of(*session));
    static_cast<void>(io.losses(0));
    return io.link_state().state == std::string("up") &&
           session->port(0).flows->listed().size() == 2;
  });
  CHECK(read.wait_for(LONGEST) == std::future_status::ready);
  CHECK(added.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  hold(false);
  CHECK(read.get());
  CHECK(added.get().size() == 1000);
  CHECK(session->port(0).flows->listed().size() == 1002);
  finish(*session);
}

TEST_CASE("counters are read while rules are installed", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(HELD_RULES) == 0);
}
