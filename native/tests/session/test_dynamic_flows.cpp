// Flows that are added and deleted during traffic.
#include <catch2/catch.hpp>

#include <atomic>
#include <map>
#include <thread>

#include "session/flow_changes.h"
#include "session/loopback_config.h"
#include "session/snapshot.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Contains;

namespace {

FlowRuleConfig rule(std::uint16_t port, std::uint16_t queue) {
  FlowRuleConfig flow;
  flow.name_ = "udp_" + std::to_string(port);
  flow.action_.id_ = queue;
  flow.match_.udp_dst_ = port;
  return flow;
}

EndedFlowOp next_ended(FlowChanges& changes) {
  const std::uint64_t end = monotonic_ns() + 60'000'000'000;
  while (monotonic_ns() < end) {
    if (auto ended = changes.poll()) return *ended;
    std::this_thread::yield();
  }
  throw std::runtime_error("no operation ends");
}

/// Flow ids of received packets, in order.
std::vector<FlowId> receive_ids(RxQueue& rx, std::size_t count) {
  std::vector<FlowId> ids;
  const std::uint64_t end = monotonic_ns() + 20'000'000'000;
  while (ids.size() < count && monotonic_ns() < end) {
    Burst* burst = rx.receive();
    if (burst == nullptr) {
      rx.wait(10'000'000);
      continue;
    }
    ids.insert(ids.end(), burst->flow_ids, burst->flow_ids + burst->num_packets());
    burst->release();
  }
  return ids;
}

/// Checks all packets of a session until it is closed. The number of a packet tells its expected
/// flow: 0 for none, or the configured flow, or how many were added before.
class Check {
 public:
  static constexpr std::uint32_t CONFIGURED = 10;
  static constexpr std::uint32_t FIRST_ADDED = 100;

  static std::uint16_t queue_of(std::uint32_t number) {
    return static_cast<std::uint16_t>(number < FIRST_ADDED ? 0 : number % 2);
  }
  static FlowId id_of(std::uint32_t number) {
    return number < FIRST_ADDED ? number : MAX_STATIC_FLOW_ID + 1 + (number - FIRST_ADDED);
  }

  explicit Check(Session& session) {
    for (const auto& rx : session.port(0).rx) {
      threads_.emplace_back([this, &rx = *rx] {
        for (bool last = false; !(last && rx.counters().held == 0);) {
          last = rx.closed();
          Burst* burst = rx.receive();
          if (burst == nullptr) {
            rx.wait(10'000'000);
            continue;
          }
          for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
            const std::uint32_t number = number_of(*burst, i);
            if (queue_of(number) != rx.id()) ++wrong_queue;
            if (id_of(number) != burst->flow_ids[i]) ++wrong_id;
          }
          received += burst->num_packets();
          burst->release();
        }
      });
    }
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
  }

  std::atomic<std::uint64_t> received{0};
  std::atomic<std::uint64_t> wrong_queue{0};
  std::atomic<std::uint64_t> wrong_id{0};

 private:
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("thousands of flows come and go while packets flow", "[session][flows]") {
#ifdef __SANITIZE_THREAD__
  constexpr std::uint32_t FLOWS = 2'000;
#else
  constexpr std::uint32_t FLOWS = 10'000;
#endif
  constexpr std::uint32_t AT_ONCE = 8;
  auto config = loopback_config(32, 200);
  config.ifs_[0].rx_.flows_[1].match_.udp_dst_ = 4999;
  TxQueueConfig other = config.ifs_[0].tx_.queues_[0];
  other.common_.name_ = "tx1";
  other.common_.id_ = 1;
  other.common_.cpu_core_ = "0";
  config.ifs_[0].tx_.queues_.push_back(other);
  const auto session = Session::open(config);
  FlowChanges& changes = session->flow_changes();
  Check check(*session);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> sent{0};
  // Traffic that no change affects.
  std::thread steady([&] {
    while (!stop && send_frames(session->tx_queue(0, 1), 5000, Check::CONFIGURED, 1)) ++sent;
  });
  TxQueue& tx = session->tx_queue(0, 0);
  std::vector<std::uint16_t> ports(AT_ONCE);
  const auto send_to_all = [&](auto number_for) {
    const bool done = send_packets(tx, AT_ONCE, 0, 0, 20'000'000'000, [&](std::uint32_t i) {
      return udp_frame(ports[i], number_for(i));
    });
    // Wait until these packets have been steered.
    sent += AT_ONCE;
    return done && tx.wait_idle(20'000'000'000);
  };
  std::uint32_t added = 0;
  bool good = true;
  while (good && added < FLOWS) {
    // One flow alone, the others in a batch.
    std::vector<FlowRuleConfig> rules;
    for (std::uint32_t i = 0; i < AT_ONCE; ++i) {
      ports[i] = static_cast<std::uint16_t>(10'000 + (added + i) % 5'000);
      rules.push_back(rule(ports[i], Check::queue_of(Check::FIRST_ADDED + added + i)));
    }
    const FlowOpId first = changes.begin_add(0, {rules.front()}, FlowOpType::ADD_RX);
    rules.erase(rules.begin());
    const FlowOpId rest = changes.begin_add(0, rules, FlowOpType::ADD_RX_BATCH);
    const FlowOpResult one = next_ended(changes).result;
    const FlowOpResult batch = next_ended(changes).result;
    good = good && one.op_id_ == first && batch.op_id_ == rest && one.status_ == Status::SUCCESS &&
           batch.status_ == Status::SUCCESS && batch.flow_ids_.size() == rules.size();
    std::vector<FlowId> ids{one.flow_id_};
    ids.insert(ids.end(), batch.flow_ids_.begin(), batch.flow_ids_.end());
    for (std::uint32_t i = 0; good && i < AT_ONCE; ++i)
      good = ids[i] == Check::id_of(Check::FIRST_ADDED + added + i);
    good = good && send_to_all([&](std::uint32_t i) { return Check::FIRST_ADDED + added + i; });
    for (const FlowId id : ids) changes.begin_delete(id);
    for (const FlowId id : ids) {
      const FlowOpResult gone = next_ended(changes).result;
      good = good && gone.type_ == FlowOpType::DELETE && gone.flow_id_ == id &&
             gone.status_ == Status::SUCCESS;
    }
    good = good && send_to_all([](std::uint32_t) { return 0U; });
    added += AT_ONCE;
  }
  stop = true;
  steady.join();
  CHECK(good);
  CHECK(added == FLOWS);
  session->close();
  check.join();
  CHECK(check.received == sent);
  CHECK(check.wrong_queue == 0);
  CHECK(check.wrong_id == 0);
  std::uint64_t received = 0;
  for (const auto& rx : session->port(0).rx) {
    received += rx->counters().received;
    CHECK(rx->counters().dropped_total() == 0);
  }
  CHECK(received == sent);
  // Totals of removed flows: the packets steered to one.
  const SessionSnapshot snapshot = SessionSnapshot::of(*session);
  REQUIRE(snapshot.added_flows.size() == 1);
  CHECK(snapshot.added_flows[0].flow == "(removed)");
  CHECK(snapshot.added_flows[0].counters.packets == FLOWS);
  CHECK(snapshot.flows[0].counters.packets == sent - 2 * FLOWS);
}

TEST_CASE("flows that cannot be added say why, and hold up no others", "[session][flows]") {
  auto config = loopback_config();
  config.ifs_[0].rx_.dynamic_flow_capacity_ = 3;
  const auto session = Session::open(config);
  FlowChanges& changes = session->flow_changes();
  changes.begin_add(0, {rule(6000, 1), rule(6001, 7), rule(6002, 0)}, FlowOpType::ADD_RX_BATCH);
  const EndedFlowOp batch = next_ended(changes);
  CHECK(batch.result.status_ == Status::INVALID_PARAMETER);
  const std::vector<FlowId> ids = batch.result.flow_ids_;
  REQUIRE(ids.size() == 3);
  CHECK(ids[0] > MAX_STATIC_FLOW_ID);
  CHECK(ids[1] == 0);
  CHECK(ids[2] > ids[0]);
  CHECK_THAT(batch.reason, Contains("interface 'port0': flow 'udp_6001': action.id: found 7, which "
                                    "is not a receive queue of this interface; accepts 0, 1"));
  const auto refused = [&](const FlowRuleConfig& flow, Status status, const std::string& reason) {
    changes.begin_add(0, {flow}, FlowOpType::ADD_RX);
    const EndedFlowOp ended = next_ended(changes);
    CHECK(ended.result.status_ == status);
    CHECK(ended.result.flow_id_ == 0);
    CHECK_THAT(ended.reason, Contains(reason));
  };
  FlowRuleConfig same = rule(6000, 1);
  same.name_ = "same";
  refused(same, Status::INVALID_PARAMETER, "flow 'udp_6000' (id " + std::to_string(ids[0]) + ")");
  FlowRuleConfig popped = rule(6003, 1);
  FlowAction pop;
  pop.type_ = FlowType::VLAN_POP;
  popped.actions_ = {pop, popped.action_};
  if (!session->flow_changes().transforms())
    refused(popped, Status::NOT_SUPPORTED, "flow 'udp_6003': action vlan_pop");
  FlowRuleConfig flex = rule(0, 1);
  flex.match_.type_ = FlowMatchType::FLEX_ITEM;
  refused(flex, Status::INVALID_PARAMETER, "which is not a flex item of this interface");
  FlowRuleConfig ports = rule(0, 1);
  ports.match_.udp_dst_ = {7, 6};
  refused(ports, Status::INVALID_PARAMETER, "udp_dst");
  changes.begin_add(0, {rule(6004, 1)}, FlowOpType::ADD_RX);
  CHECK(next_ended(changes).result.status_ == Status::SUCCESS);
  refused(rule(6005, 1), Status::NO_SPACE_AVAILABLE, "dynamic_flow_capacity is 3");
}

TEST_CASE("only flows that were added are deleted, and once", "[session][flows]") {
  const auto session = Session::open(loopback_config());
  FlowChanges& changes = session->flow_changes();
  CHECK_FALSE(changes.poll());
  CHECK_THROWS_WITH(changes.begin_delete(11),
                    Contains("flow 11 is flow 'flow1' of the configuration of interface 'port0'"));
  CHECK_THROWS_WITH(changes.begin_delete(MAX_STATIC_FLOW_ID + 1),
                    Contains("not one of the 0 flows"));
  CHECK_THROWS_WITH(changes.begin_delete(0), Contains("not one of the 0 flows"));
  CHECK_THROWS_WITH(changes.begin_add(0, {}, FlowOpType::ADD_RX_BATCH), Contains("no flow to add"));
  CHECK_THROWS_WITH(changes.begin_add(3, {rule(1, 0)}, FlowOpType::ADD_RX), Contains("no port 3"));
  const FlowId id = changes.add(0, {rule(6000, 1)}).front().flow.id_;
  changes.begin_delete(id);
  CHECK_THROWS_WITH(changes.begin_delete(id), Contains("not one of the 0 flows"));
  CHECK(next_ended(changes).result.flow_id_ == id);
  CHECK(changes.add(0, {rule(6000, 1)}).front().flow.id_ == id + 1);
  changes.remove(id + 1);
  CHECK_THROWS_AS(changes.remove(id + 1), Error);
  session->close();
  CHECK_THROWS_WITH(changes.begin_add(0, {rule(1, 0)}, FlowOpType::ADD_RX), Contains("closed"));
}

TEST_CASE("packets of a flow that was deleted keep its id as long as they are held",
          "[session][flows]") {
  const auto session = Session::open(loopback_config());
  FlowChanges& changes = session->flow_changes();
  const auto added = changes.add(0, {rule(6000, 1), rule(6001, 1)});
  const std::vector<FlowId> ids{added[0].flow.id_, added[1].flow.id_};
  TxQueue& tx = session->tx_queue(0, 0);
  REQUIRE(send_frames(tx, 6000, 0, 3));
  REQUIRE(send_frames(tx, 6001, 0, 2));
  REQUIRE(tx.wait_idle(10'000'000'000));
  for (const FlowId id : ids) changes.remove(id);
  REQUIRE(send_frames(tx, 6000, 0, 4));
  CHECK(receive_ids(session->rx_queue(0, 1), 5) ==
        std::vector<FlowId>{ids[0], ids[0], ids[0], ids[1], ids[1]});
  CHECK(receive_ids(session->rx_queue(0, 0), 4) == std::vector<FlowId>(4, 0));
}

TEST_CASE("the configuration's flows are replaced while the session runs", "[session][flows]") {
  const auto session = Session::open(loopback_config());
  TxQueue& tx = session->tx_queue(0, 0);
  REQUIRE(send_frames(tx, 5000, 0, 30));
  CHECK(receive_numbers(session->rx_queue(0, 0), 30).size() == 30);
  NetworkConfig wanted = session->current_config();
  auto& flows = wanted.ifs_[0].rx_.flows_;
  flows[0].match_.udp_dst_ = 6000;
  flows[0].action_.id_ = 1;
  flows[0].actions_ = {flows[0].action_};
  flows.erase(flows.begin() + 1);
  FlowConfig more = flows[0];
  more.name_ = "more";
  more.id_ = 77;
  more.match_.udp_dst_ = 7000;
  flows.push_back(more);
  session->configure_flows(wanted);
  CHECK(session->current_config().ifs_[0].rx_.flows_ == flows);
  REQUIRE(send_frames(tx, 6000, 0, 2));
  REQUIRE(send_frames(tx, 7000, 0, 1));
  CHECK(receive_ids(session->rx_queue(0, 1), 3) == std::vector<FlowId>{10, 10, 77});
  const auto latest = session->latest();
  REQUIRE(latest->flows.size() == 2);
  CHECK(latest->flows[0].flow == "flow0");
  CHECK(latest->flows[1].flow == "more");
  CHECK(SessionSnapshot::of(*session).flows[0].counters.packets == 32);

  NetworkConfig wrong = wanted;
  wrong.ifs_[0].rx_.flows_[0].action_.id_ = 9;
  wrong.ifs_[0].rx_.flows_[0].actions_.clear();
  CHECK_THROWS_WITH(session->configure_flows(wrong), Contains("found 9"));
  wrong = wanted;
  wrong.ifs_[0].rx_.queues_[0].common_.batch_size_ = 1;
  CHECK_THROWS_WITH(session->configure_flows(wrong), Contains("more than rx.flows"));
  CHECK(session->current_config().ifs_[0].rx_.flows_ == flows);
}
