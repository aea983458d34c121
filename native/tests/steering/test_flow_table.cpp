// Changes to the flows of a port.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "frames.h"
#include "steering/flow_table.h"
#include "timing/clock.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Contains;
using steering::Addition;
using steering::FlowTable;
using steering::PacketView;
using steering::Steering;
using Whole = FlowTable::Whole;

namespace {

FlowConfig flow_of(FlowId id, PortRange ports, std::uint16_t queue) {
  FlowConfig flow;
  flow.name_ = "added" + std::to_string(id);
  flow.id_ = id;
  flow.action_.id_ = queue;
  flow.actions_ = {flow.action_};
  flow.match_.udp_dst_ = ports;
  return flow;
}

/// A port with flow 1 (UDP port 5000, queue 0) and flow 2 (any, queue 1).
struct Fixture {
  InterfaceConfig config = [] {
    InterfaceConfig interface = interface_with_queues(4);
    add_flow(interface, 1, 0).match_.udp_dst_ = 5000;
    add_flow(interface, 2, 1);
    return interface;
  }();
  Steering steering{};
  FlowTable table{config, steering};

  /// Flow and queue of a packet to `port`.
  std::pair<FlowId, std::uint16_t> steer(std::uint16_t port) {
    const auto verdict =
        steering.program()->classify(PacketView{{true, false, 4000, port, 100, 1, 2}});
    return {verdict.flow, verdict.queue};
  }
  /// The reason for a rejection; empty if accepted.
  std::string add(const FlowConfig& flow) {
    std::vector<Addition> additions{{.flow = flow}};
    table.change({}, additions, Whole::ALL_THAT_ARE_ACCEPTED);
    return additions.front().refused ? additions.front().refused->what() : "";
  }
  void remove(FlowId id) { table.change(std::span(&id, 1), {}, Whole::ALL_THAT_ARE_ACCEPTED); }
  void count(std::uint16_t port, std::uint64_t packets) {
    const auto verdict =
        steering.program()->classify(PacketView{{true, false, 4000, port, 100, 1, 2}});
    tally.count(verdict.position, packets, 100 * packets);
  }
  std::uint64_t packets_of(FlowId id) {
    for (const auto& flow : table.installed())
      if (flow.config->id_ == id) return table.counts(flow).packets;
    FAIL("no flow " << id);
    return 0;
  }
  steering::FlowTally& tally{steering.add_tally()};
};

using Steered = std::pair<FlowId, std::uint16_t>;

}  // namespace

TEST_CASE("flows that were added come before the configuration's, newer ones before older ones",
          "[steering][flows]") {
  Fixture port;
  CHECK(port.steer(5000) == Steered{1, 0});
  CHECK(port.add(flow_of(100, {4000, 6000}, 2)).empty());
  CHECK(port.steer(5000) == Steered{100, 2});
  CHECK(port.add(flow_of(101, 5000, 3)).empty());
  CHECK(port.steer(5000) == Steered{101, 3});
  CHECK(port.steer(5001) == Steered{100, 2});
  // The same match to another queue is a different rule: the newer one wins while it exists.
  CHECK(port.add(flow_of(102, 5000, 0)).empty());
  CHECK(port.steer(5000) == Steered{102, 0});
  port.remove(102);
  CHECK(port.steer(5000) == Steered{101, 3});
  port.remove(101);
  port.remove(100);
  CHECK(port.steer(5000) == Steered{1, 0});
  CHECK(port.steer(5001) == Steered{2, 1});
}

TEST_CASE("flows of one change are added together, the last of them the newest",
          "[steering][flows]") {
  Fixture port;
  std::vector<Addition> additions{{.flow = flow_of(100, 5000, 2)},
                                  {.flow = flow_of(101, {5000, 5001}, 3)}};
  port.table.change({}, additions, Whole::ALL_OR_NOTHING);
  CHECK(port.steer(5000) == Steered{101, 3});
  const auto listed = port.table.listed();
  std::vector<FlowId> ids;
  std::ranges::transform(listed, std::back_inserter(ids),
                         [](const auto& flow) { return flow.config->id_; });
  CHECK(ids == std::vector<FlowId>{1, 2, 100, 101});
  // One change replaces flows by ones that could not coexist with them.
  const std::vector<FlowId> removed{100, 101};
  std::vector<Addition> others{{.flow = flow_of(102, 5000, 2)}};
  port.table.change(removed, others, Whole::ALL_OR_NOTHING);
  CHECK_FALSE(others.front().refused);
  CHECK(port.steer(5000) == Steered{102, 2});
  CHECK(port.steer(5001) == Steered{2, 1});
}

TEST_CASE("a flow that does what another does is refused, and both are named",
          "[steering][flows]") {
  Fixture port;
  REQUIRE(port.add(flow_of(100, 5000, 2)).empty());
  FlowConfig same = flow_of(101, 5000, 2);
  same.name_ = "again";
  CHECK_THAT(port.add(same), Contains("interface 'port0': flow 'again' (id 101)") &&
                                 Contains("flow 'added100' (id 100)") &&
                                 Contains("delete that one first"));
  CHECK(port.steer(5000) == Steered{100, 2});
  CHECK(port.table.installed().size() == 3);
  // The other flows of a change are all added, or none is.
  std::vector<Addition> additions{{.flow = flow_of(102, 6000, 3)}, {.flow = same}};
  SECTION("all that are accepted") {
    port.table.change({}, additions, Whole::ALL_THAT_ARE_ACCEPTED);
    CHECK_FALSE(additions[0].refused);
    CHECK(port.steer(6000) == Steered{102, 3});
  }
  SECTION("all or nothing") {
    port.table.change({}, additions, Whole::ALL_OR_NOTHING);
    CHECK(port.steer(6000) == Steered{2, 1});
  }
  REQUIRE(additions[1].refused);
  CHECK(additions[1].refused->status() == Status::INVALID_PARAMETER);
}

TEST_CASE("a flow of another kind of match is refused, and both are named", "[steering][flows]") {
  Fixture port;
  FlowConfig flex = flow_of(100, 0, 2);
  flex.match_.type_ = FlowMatchType::FLEX_ITEM;
  CHECK_THAT(port.add(flex), Contains("flow 'added100' (id 100) has a flex item match") &&
                                 Contains("flow 'flow1' (id 1) has a UDP match"));
}

TEST_CASE("no more flows are added than dynamic_flow_capacity says", "[steering][flows]") {
  InterfaceConfig config = interface_with_queues(1);
  config.rx_.dynamic_flow_capacity_ = 2;
  add_flow(config, 1, 0).match_.udp_dst_ = 5000;
  Steering steering;
  FlowTable table(config, steering);
  std::vector<Addition> additions;
  for (std::uint16_t i = 0; i < 3; ++i)
    additions.push_back({.flow = flow_of(100U + i, static_cast<std::uint16_t>(6000 + i), 0)});
  table.change({}, additions, Whole::ALL_THAT_ARE_ACCEPTED);
  CHECK_FALSE(additions[1].refused);
  REQUIRE(additions[2].refused);
  CHECK(additions[2].refused->status() == Status::NO_SPACE_AVAILABLE);
  CHECK_THAT(additions[2].refused->what(), Contains("dynamic_flow_capacity is 2"));
  // The same change frees the space that it needs.
  const FlowId gone = 100;
  std::vector<Addition> more{{.flow = flow_of(103, 6003, 0)}};
  table.change(std::span(&gone, 1), more, Whole::ALL_OR_NOTHING);
  CHECK_FALSE(more.front().refused);
}

TEST_CASE("each flow counts its own packets, and those of removed flows are kept together",
          "[steering][flows]") {
  Fixture port;
  CHECK_FALSE(port.table.removed());
  port.count(5000, 3);
  port.add(flow_of(100, 5000, 2));
  port.count(5000, 4);
  CHECK(port.packets_of(1) == 3);
  CHECK(port.packets_of(100) == 4);
  const auto key = port.table.installed().front().key;
  CHECK(port.table.counts(key).bytes == 400);
  port.remove(100);
  CHECK_THROWS_WITH(port.table.counts(key), Contains("was removed"));
  CHECK(port.table.removed()->packets == 4);
  // The slot is reused only after many other flows.
  for (FlowId id = 101; id < 101 + 3000; ++id) {
    port.add(flow_of(id, 5000, 2));
    port.count(5000, 1);
    REQUIRE(port.packets_of(id) == 1);
    port.remove(id);
  }
  CHECK(port.table.removed()->packets == 4 + 3000);
  CHECK(port.steering.program()->num_positions() == 2);
  CHECK(port.packets_of(1) == 3);
}

TEST_CASE("flows of the configuration are replaced beside those that were added",
          "[steering][flows]") {
  Fixture port;
  port.add(flow_of(100, 6000, 2));
  port.count(5000, 3);
  port.count(7000, 2);
  std::vector<FlowConfig> flows = port.config.rx_.flows_;
  flows[0].match_.udp_dst_ = 5001;
  flows[1] = flow_of(9, {6000, 6999}, 3);
  port.table.configure(flows);
  CHECK(port.table.configured() == flows);
  CHECK(port.steer(5001) == Steered{1, 0});
  CHECK(port.steer(5000) == Steered{0, 0});
  CHECK(port.steer(6000) == Steered{100, 2});
  CHECK(port.steer(6001) == Steered{9, 3});
  // The counters of a changed flow continue; a new flow starts at zero.
  CHECK(port.packets_of(1) == 3);
  CHECK(port.packets_of(9) == 0);
  CHECK(port.table.removed()->packets == 2);
}

TEST_CASE("one more of thousands of flows is added", "[steering][flows]") {
  Fixture port;
  std::vector<Addition> many;
  for (std::uint16_t i = 0; i < 4096; ++i)
    many.push_back({.flow = flow_of(100U + i, static_cast<std::uint16_t>(10'000 + i), 2)});
  std::uint64_t begun = monotonic_ns();
  port.table.change({}, many, Whole::ALL_OR_NOTHING);
  const std::uint64_t all = monotonic_ns() - begun;
  begun = monotonic_ns();
  for (std::uint16_t i = 0; i < 10; ++i) {
    REQUIRE(port.add(flow_of(9000U + i, static_cast<std::uint16_t>(20'000 + i), 3)).empty());
    CHECK(port.steer(static_cast<std::uint16_t>(20'000 + i)) == Steered{9000U + i, 3});
  }
  if (std::getenv("DAQIRI_PRINT_TIMES") != nullptr) {
    std::printf("4096 flows in %.1f ms, one more in %.2f ms\n", static_cast<double>(all) / 1e6,
                static_cast<double>(monotonic_ns() - begun) / 1e7);
  }
  CHECK(port.steer(14'095) == Steered{100 + 4095, 2});
}
