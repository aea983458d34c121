// What an engine with a network card can do, and those of this build do not.
#include <catch2/catch.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engines/modules/odd_module.h"
#include "frames.h"
#include "session/flow_changes.h"
#include "session/reorder_config.h"
#include "session/snapshot.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

using Numbers = std::vector<std::uint32_t>;

FlowRuleConfig rule(const std::string& name, std::uint16_t udp_dst, std::uint16_t queue) {
  FlowRuleConfig rule;
  rule.name_ = name;
  rule.match_.udp_dst_ = {udp_dst, udp_dst};
  rule.action_.id_ = queue;
  rule.actions_ = {rule.action_};
  return rule;
}

/// Two queues, a flow for each, and one for both.
NetworkConfig with_flows(const char* engine) {
  NetworkConfig config = loopback_config();
  InterfaceConfig& interface = config.ifs_[0];
  FlowConfig both = interface.rx_.flows_[0];
  both.name_ = "both";
  both.id_ = 12;
  both.match_.udp_dst_ = {6000, 6099};
  both.action_.ids_ = {1, 0};
  both.actions_ = {both.action_};
  interface.rx_.flows_.push_back(both);
  if (engine != nullptr) {
    config.common_.loopback_ = LoopbackType::DISABLED;
    use_odd_engine(config, engine);
  }
  return config;
}

/// Numbers of the packets by queue and flow id, and the flows' counters.
struct Seen {
  std::map<std::pair<int, FlowId>, Numbers> packets;
  std::map<std::string, std::uint64_t> counts;
  bool operator==(const Seen&) const = default;
};

Seen seen_by(const char* engine) {
  const auto session = Session::open(with_flows(engine));
  TxQueue& tx = session->tx_queue(0, 0);
  Seen seen;
  std::uint32_t number = 0;
  const auto send = [&](std::uint16_t port, std::uint32_t n) {
    REQUIRE(send_frames(tx, port, number, n));
    number += n;
  };
  const auto receive = [&](std::uint32_t n) {
    const std::uint64_t end = monotonic_ns() + 10'000'000'000U;
    for (std::uint32_t got = 0; got < n && monotonic_ns() < end;) {
      for (int q = 0; q < 2; ++q) {
        Burst* const burst = session->rx_queue(0, q).receive();
        if (burst == nullptr) continue;
        for (std::uint32_t i = 0; i < burst->num_packets(); ++i)
          seen.packets[{q, burst->flow_ids[i]}].push_back(number_of(*burst, i));
        got += burst->num_packets();
        burst->release();
      }
    }
  };
  send(5000, 20);
  send(5001, 30);
  send(7000, 5);
  for (std::uint16_t port = 6000; port < 6040; ++port) send(port, 1);
  receive(95);
  const auto added = session->flow_changes().add(0, {rule("late", 7000, 1)});
  send(7000, 7);
  receive(7);
  session->flow_changes().remove(added[0].flow.id_);
  send(7000, 3);
  receive(3);
  for (const FlowState& flow : SessionSnapshot::of(*session).flows)
    seen.counts[flow.flow] = flow.counters.packets.value;
  return seen;
}

}  // namespace

TEST_CASE("a card that steers gives packets to the same queues and flows as the program",
          "[engines]") {
  const Seen card = seen_by("odd_flows");
  const Seen program = seen_by(nullptr);
  CHECK(card == program);
  CHECK(card.counts ==
        std::map<std::string, std::uint64_t>{{"flow0", 20}, {"flow1", 30}, {"both", 40}});
  CHECK(card.packets.at({1, 12}).size() > 5);
  CHECK(card.packets.at({0, 12}).size() > 5);
}

TEST_CASE("flows say what selects their packets", "[engines]") {
  const auto offload = [](const char* engine) {
    const auto session = Session::open(with_flows(engine));
    static_cast<void>(session->flow_changes().add(0, {rule("late", 7000, 1)}));
    std::vector<std::string> all;
    for (const auto& flow : session->port(0).flows->listed()) all.emplace_back(flow.offload);
    return all;
  };
  CHECK(offload("odd_flows") == std::vector<std::string>(4, "card"));
  CHECK(offload("odd") == std::vector<std::string>(4));
}

TEST_CASE("a flow that the card cannot have is refused by name, others are added", "[engines]") {
  const auto session = Session::open(with_flows("odd_flows"));
  FlowChanges& changes = session->flow_changes();
  CHECK_THROWS_WITH(changes.add(0, {rule("good", 7000, 1), rule("bad", 13, 1)}),
                    Catch::Contains("interface 'port0': flow 'bad' (id ") &&
                        Catch::Contains("): the card has no port 13"));
  CHECK(session->port(0).flows->listed().size() == 3);
  const FlowOpId begun =
      changes.begin_add(0, {rule("good", 7000, 1), rule("bad", 13, 1)}, FlowOpType::ADD_RX_BATCH);
  std::optional<EndedFlowOp> ended;
  const std::uint64_t end = monotonic_ns() + 10'000'000'000U;
  while (!(ended = changes.poll()) && monotonic_ns() < end) std::this_thread::yield();
  REQUIRE(ended);
  CHECK(ended->result.op_id_ == begun);
  CHECK(ended->result.status_ == Status::NOT_SUPPORTED);
  REQUIRE(ended->result.flow_ids_.size() == 2);
  CHECK(ended->result.flow_ids_[0] != 0);
  CHECK(ended->result.flow_ids_[1] == 0);
  const auto listed = session->port(0).flows->listed();
  REQUIRE(listed.size() == 4);
  CHECK(listed.back().config->name_ == "good");
}

TEST_CASE("flows that are refused for different reasons are all answered", "[engines]") {
  const auto session = Session::open(with_flows("odd_flows"));
  FlowChanges& changes = session->flow_changes();
  static_cast<void>(changes.add(0, {rule("first", 7000, 1)}));
  // The same flow again, one that the card cannot have, and one that is wrong.
  FlowRuleConfig wrong = rule("wrong", 7001, 9);
  static_cast<void>(changes.begin_add(
      0, {wrong, rule("again", 7000, 1), rule("bad", 13, 1), rule("good", 7002, 1)},
      FlowOpType::ADD_RX_BATCH));
  std::optional<EndedFlowOp> ended;
  const std::uint64_t end = monotonic_ns() + 10'000'000'000U;
  while (!(ended = changes.poll()) && monotonic_ns() < end) std::this_thread::yield();
  REQUIRE(ended);
  REQUIRE(ended->result.flow_ids_.size() == 4);
  CHECK(ended->result.flow_ids_[0] == 0);
  CHECK(ended->result.flow_ids_[1] == 0);
  CHECK(ended->result.flow_ids_[2] == 0);
  CHECK(ended->result.flow_ids_[3] != 0);
  CHECK(session->port(0).flows->listed().size() == 5);
}

TEST_CASE("a port that refuses new flows leaves those of other ports as they were", "[engines]") {
  NetworkConfig config = with_flows("odd_flows");
  config.ifs_.push_back(config.ifs_[0]);
  config.ifs_[1].name_ = "port1";
  for (FlowConfig& flow : config.ifs_[1].rx_.flows_) flow.id_ += 10;
  const auto session = Session::open(config);
  NetworkConfig wanted = session->current_config();
  wanted.ifs_[0].rx_.flows_[0].match_.udp_dst_ = {7000, 7000};
  wanted.ifs_[1].rx_.flows_[0].match_.udp_dst_ = {13, 13};
  CHECK_THROWS_WITH(session->configure_flows(wanted), Catch::Contains("interface 'port1'"));
  CHECK(session->current_config().ifs_[0].rx_.flows_ == session->config().ifs_[0].rx_.flows_);
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 10));
  CHECK(receive_numbers(session->rx_queue(0, 0), 10).size() == 10);
}

TEST_CASE("a configured flow that the card cannot have stops the engine from opening",
          "[engines]") {
  NetworkConfig config = with_flows("odd_flows");
  config.ifs_[0].rx_.flows_[1].match_.udp_dst_ = {13, 13};
  CHECK_THROWS_WITH(Session::open(config),
                    "interface 'port0': flow 'flow1' (id 11): the card has no port 13");
}

TEST_CASE("new configured flows that the card cannot have change nothing", "[engines]") {
  const auto session = Session::open(with_flows("odd_flows"));
  NetworkConfig wanted = session->current_config();
  wanted.ifs_[0].rx_.flows_[0].match_.udp_dst_ = {7000, 7000};
  wanted.ifs_[0].rx_.flows_[1].match_.udp_dst_ = {13, 13};
  CHECK_THROWS_WITH(session->configure_flows(wanted),
                    "interface 'port0': flow 'flow1' (id 11): the card has no port 13");
  REQUIRE(send_frames(session->tx_queue(0, 0), 5001, 0, 10));
  CHECK(receive_numbers(session->rx_queue(0, 1), 10).size() == 10);
}

TEST_CASE("an engine that keeps the rate is given packets at once", "[engines]") {
  const auto most_offered = [](const char* engine) {
    NetworkConfig config = with_flows(engine);
    config.ifs_[0].tx_.queues_[0].pacing_mbps_ = 1;
    const auto session = Session::open(config);
    odd_most_offered() = 0;
    REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 40, 0, 0, 1024));
    CHECK(receive_numbers(session->rx_queue(0, 0), 40).size() == 40);
    return odd_most_offered().load();
  };
  CHECK(most_offered("odd_pacing") == 17);
  // 8 ms for each packet.
  CHECK(most_offered("odd") == 1);
}

TEST_CASE("packets that the CPU cannot read are refused to reorder plans", "[engines]") {
  NetworkConfig config = reordering();
  config.common_.loopback_ = LoopbackType::DISABLED;
  use_odd_engine(config, "odd_device");
  CHECK_THROWS_WITH(
      Session::open(config),
      Catch::Contains("receive queue 'rx0' of interface 'port0' has reorder configs, and receives "
                      "into 'cells', which the CPU cannot read"));
}
