// Flows at run time, through the documented functions.
#include <catch2/catch.hpp>

#include <thread>

#include "api/engine.h"
#include "daqiri/daqiri.h"
#include "timing/clock.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Contains;

namespace {

FlowRuleConfig rule(std::uint16_t port, std::uint16_t queue = 0) {
  FlowRuleConfig flow;
  flow.action_.id_ = queue;
  flow.match_.udp_dst_ = port;
  return flow;
}

FlowOpResult completed() {
  FlowOpResult result;
  const std::uint64_t end = monotonic_ns() + 20'000'000'000;
  while (poll_flow_op(&result) == Status::NOT_READY && monotonic_ns() < end)
    std::this_thread::yield();
  return result;
}

}  // namespace

TEST_CASE("flows are added and deleted by operations that are polled", "[api][flows]") {
  const Engine engine(LOOPBACK);
  FlowOpResult result;
  CHECK(poll_flow_op(&result) == Status::NOT_READY);
  FlowOpId first = 0;
  FlowOpId second = 0;
  REQUIRE(add_rx_flow_async(0, rule(6000), &first) == Status::SUCCESS);
  REQUIRE(add_rx_flows_async(0, {rule(6001), rule(6002)}, &second) == Status::SUCCESS);
  CHECK(first == 1);
  CHECK(second == 2);
  const FlowOpResult one = completed();
  CHECK(one.op_id_ == first);
  CHECK(one.type_ == FlowOpType::ADD_RX);
  CHECK(one.status_ == Status::SUCCESS);
  CHECK(one.flow_id_ > MAX_STATIC_FLOW_ID);
  CHECK(one.flow_ids_.empty());
  const FlowOpResult two = completed();
  CHECK(two.op_id_ == second);
  CHECK(two.type_ == FlowOpType::ADD_RX_BATCH);
  CHECK(two.flow_ids_ == std::vector<FlowId>{one.flow_id_ + 1, one.flow_id_ + 2});
  REQUIRE(delete_flow_async(two.flow_ids_[1], &first) == Status::SUCCESS);
  const FlowOpResult gone = completed();
  CHECK(gone.type_ == FlowOpType::DELETE);
  CHECK(gone.flow_id_ == two.flow_ids_[1]);
  CHECK(poll_flow_op(&result) == Status::NOT_READY);
}

TEST_CASE("operations on flows that cannot be say why", "[api][flows]") {
  const Engine engine(LOOPBACK);
  FlowOpId op = 0;
  CHECK(add_rx_flow_async(0, rule(1), nullptr) == Status::NULL_PTR);
  CHECK(delete_flow_async(1, nullptr) == Status::NULL_PTR);
  CHECK(poll_flow_op(nullptr) == Status::NULL_PTR);
  CHECK(add_rx_flow_async(7, rule(1), &op) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Contains("no port 7"));
  CHECK(add_rx_flows_async(0, {}, &op) == Status::INVALID_PARAMETER);
  CHECK(delete_flow_async(MAX_STATIC_FLOW_ID + 1, &op) == Status::INVALID_PARAMETER);
  CHECK_THAT(last_error(), Contains("delete_flow_async: flow 8388608"));
  REQUIRE(add_rx_flow_async(0, rule(6000, 99), &op) == Status::SUCCESS);
  const FlowOpResult failed = completed();
  CHECK(failed.status_ == Status::INVALID_PARAMETER);
  CHECK(failed.flow_id_ == 0);
  CHECK_THAT(last_error(), Contains("poll_flow_op: interface 'camera'") && Contains("found 99"));
}
