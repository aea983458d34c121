// Configurations that are rejected before an engine is opened.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>

#include <catch2/catch.hpp>

#include "daqiri/error.h"
#include "engine/registry.h"
#include "engine/traits.h"
#include "memory/region.h"

using namespace daqiri;

namespace {

std::vector<Error> oversized(const NetworkConfig& config, std::uint64_t memory = 0) {
  std::vector<Error> found;
  find_oversized(config, memory, found);
  return found;
}

RxQueueConfig rx_queue(int id) {
  RxQueueConfig queue;
  queue.common_.name_ = "q" + std::to_string(id);
  queue.common_.id_ = id;
  queue.common_.batch_size_ = 64;
  queue.common_.mrs_ = {"buffers"};
  return queue;
}

NetworkConfig with_flow(const std::function<void(InterfaceConfig&, FlowConfig&)>& change) {
  NetworkConfig config;
  config.mrs_["buffers"] = {.name_ = "buffers", .num_bufs_ = 1024, .buf_size_ = 2048};
  InterfaceConfig& port = config.ifs_.emplace_back();
  port.name_ = "port0";
  port.rx_.queues_ = {rx_queue(0), rx_queue(1)};
  TxQueueConfig out;
  out.common_.name_ = "out";
  out.common_.batch_size_ = 32;
  out.common_.mrs_ = {"buffers"};
  port.tx_.queues_ = {out};
  FlowConfig& flow = port.rx_.flows_.emplace_back();
  flow.name_ = "flow5";
  flow.id_ = 5;
  change(port, flow);
  return config;
}

/// Status and text of the error that `call` throws.
std::pair<Status, std::string> refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.status(), error.what()};
  }
  return {Status::SUCCESS, ""};
}

FlowAction action(FlowType type) {
  FlowAction action;
  action.type_ = type;
  return action;
}

struct Case {
  std::function<void(InterfaceConfig&, FlowConfig&)> change;
  /// The trait that allows the configuration.
  bool EngineTraits::* trait;
  std::string text;
};

}  // namespace

TEST_CASE("what an engine cannot do is refused with item, value and what to do", "[engine]") {
  using Traits = EngineTraits;
  const Case cases[] = {
      {[](auto& port, auto&) { port.rx_.hardware_timestamps_ = true; },
       &Traits::hardware_timestamps, "hardware_timestamps: true"},
      {[](auto& port, auto&) { port.tx_.accurate_send_ = true; }, &Traits::timed_send,
       "accurate_send: true"},
      {[](auto& port, auto&) { port.rx_.dynamic_flow_capacity_ = 7; }, &Traits::dynamic_flows,
       "dynamic_flow_capacity: 7"},
      {[](auto&, auto& flow) {
         flow.match_.type_ = FlowMatchType::FLEX_ITEM;
         flow.match_.flex_item_match_.flex_item_id_ = 3;
       },
       &Traits::flex_items, "flow 'flow5': match by flex item 3"},
      {[](auto&, auto& flow) { flow.match_.type_ = FlowMatchType::ECPRI; }, &Traits::ecpri,
       "flow 'flow5': match by eCPRI"},
      {[](auto&, auto& flow) { flow.action_.ids_ = {0, 1}; }, &Traits::rss,
       "flow 'flow5': RSS, ids of 2 queues"},
      {[](auto&, auto& flow) { flow.actions_ = {action(FlowType::VLAN_POP), flow.action_}; },
       &Traits::transforms, "flow 'flow5': action vlan_pop"},
      {[](auto&, auto& flow) { flow.actions_ = {action(FlowType::TUNNEL_DECAP), flow.action_}; },
       &Traits::transforms, "flow 'flow5': action tunnel_decap"},
      {[](auto& port, auto&) {
         auto& flow = port.tx_.flows_.emplace_back();
         flow.name_ = "tag";
         flow.actions_ = {action(FlowType::VLAN_PUSH)};
       },
       &Traits::transforms, "flow 'tag': action vlan_push"},
      {[](auto& port, auto&) {
         auto& flow = port.tx_.flows_.emplace_back();
         flow.name_ = "wrap";
         flow.actions_ = {action(FlowType::TUNNEL_ENCAP)};
       },
       &Traits::transforms, "flow 'wrap': action tunnel_encap"},
      {[](auto& port, auto&) { port.rx_.queues_[1].poll_mode_ = QueuePollMode::DIRECT; },
       &Traits::direct_mode, "queue 'q1': poll_mode: direct"},
      {[](auto& port, auto&) { port.tx_.queues_[0].poll_mode_ = QueuePollMode::DIRECT; },
       &Traits::direct_mode, "queue 'out': poll_mode: direct"},
  };
  for (const Case& each : cases) {
    const NetworkConfig config = with_flow(each.change);
    EngineTraits traits;
    traits.name = "plain";
    const auto [status, text] = refusal([&] { refuse(find_unsupported(config, traits)); });
    INFO(text);
    CHECK(status == Status::NOT_SUPPORTED);
    CHECK_THAT(text, Catch::Contains("interface 'port0': " + each.text) && Catch::Contains("; "));
    CHECK_THAT(text, Catch::Contains("which engine 'plain' does not have"));
    traits.*each.trait = true;
    CHECK_NOTHROW(refuse(find_unsupported(config, traits)));
  }
  CHECK_NOTHROW(refuse(find_unsupported(with_flow([](auto&, auto&) {}), {})));
}

TEST_CASE("a plan on a GPU is refused where there is none", "[engine]") {
  const NetworkConfig config = with_flow([](InterfaceConfig& port, FlowConfig&) {
    ReorderConfig& plan = port.rx_.reorder_configs_.emplace_back();
    plan.name_ = "frames";
    plan.reorder_type_ = "gpu";
  });
  const std::string why = memory::why_absent(MemoryKind::HOST_PINNED);
  if (why.empty()) {
    CHECK_NOTHROW(refuse(find_unsupported(config, {})));
    return;
  }
  const auto [status, text] = refusal([&] { refuse(find_unsupported(config, {})); });
  CHECK(status == Status::NOT_SUPPORTED);
  CHECK(text == "interface 'port0': reorder config 'frames' on a GPU needs CUDA, and " + why +
                    "; set reorder_type: cpu");
}

TEST_CASE("transforms that no engine makes are refused", "[engine]") {
  EngineTraits traits;
  traits.name = "plain";
  traits.transforms = true;
  const auto refused = [&](std::vector<FlowType> types, TunnelType tunnel, const char* part) {
    const NetworkConfig config = with_flow([&](auto& port, auto& flow) {
      for (const FlowType type : types) {
        flow.actions_.push_back(action(type));
        flow.actions_.back().tunnel_.type_ = tunnel;
      }
      if (types.back() == FlowType::QUEUE) return;
      port.tx_.flows_ = {flow};
      port.rx_.flows_.clear();
    });
    const auto [status, text] = refusal([&] { refuse(find_unsupported(config, traits)); });
    INFO(text);
    CHECK(status == (*part == '\0' ? Status::SUCCESS : Status::NOT_SUPPORTED));
    CHECK_THAT(text, Catch::Contains(part));
  };
  using enum FlowType;
  refused({TUNNEL_DECAP, QUEUE}, TunnelType::VXLAN, "");
  refused({TUNNEL_DECAP, TUNNEL_DECAP, QUEUE}, TunnelType::VXLAN,
          "flow 'flow5': 2 nested tunnels, which engine 'plain' does not have; give the flow "
          "one tunnel");
  refused({TUNNEL_ENCAP, TUNNEL_ENCAP}, TunnelType::GRE, "2 nested tunnels");
  refused({VLAN_PUSH, TUNNEL_ENCAP}, TunnelType::GRE,
          "VLAN tags in a GRE tunnel with gre_protocol");
  refused({TUNNEL_DECAP, VLAN_POP, QUEUE}, TunnelType::GRE, "VLAN tags in a GRE tunnel");
  refused({VLAN_POP, TUNNEL_DECAP, QUEUE}, TunnelType::GRE, "");
  refused({TUNNEL_ENCAP, VLAN_PUSH}, TunnelType::GRE, "");
  refused({VLAN_PUSH, TUNNEL_ENCAP}, TunnelType::NVGRE, "");
  refused({VLAN_POP, VLAN_POP, VLAN_POP, VLAN_POP, QUEUE}, TunnelType::NONE, "");
  refused({VLAN_POP, VLAN_POP, VLAN_POP, VLAN_POP, VLAN_POP, QUEUE}, TunnelType::NONE,
          "more than 4 vlan_pop in a row");
}

TEST_CASE("memory regions beyond the machine's memory are refused by their keys", "[engine]") {
  NetworkConfig config = with_flow([](auto&, auto&) {});
  CHECK_NOTHROW(refuse(oversized(config)));
  MemoryRegionConfig& second = config.mrs_["second"];
  second = {.name_ = "huge", .num_bufs_ = 2147483648, .buf_size_ = 4294967295, .position_ = 1};
  auto [status, text] = refusal([&] { refuse(oversized(config)); });
  CHECK(status == Status::NO_FREE_PACKET_BUFFERS);
  CHECK_THAT(text, Catch::Contains("memory region 'huge' of num_bufs 2147483648 x buf_size "
                                   "4294967295 needs 9223372034707292160 bytes") &&
                       Catch::Contains("lower num_bufs or buf_size"));
  second = {.name_ = "second", .num_bufs_ = 1024, .buf_size_ = 2048, .position_ = 1};
  std::tie(status, text) = refusal([&] { refuse(oversized(config, std::uint64_t{3} << 20U)); });
  CHECK(status == Status::NO_FREE_PACKET_BUFFERS);
  CHECK_THAT(text, Catch::Contains("'second'") &&
                       Catch::Contains("together with the items before it 4194304") &&
                       Catch::Contains("this machine has 3145728"));
  // GPU memory does not count as memory of the machine.
  second = {.name_ = "gpu",
            .kind_ = MemoryKind::DEVICE,
            .num_bufs_ = 2147483648,
            .buf_size_ = 4294967295};
  CHECK_NOTHROW(refuse(oversized(config)));
}

TEST_CASE("bursts beyond the machine's memory are refused by their keys", "[engine]") {
  const auto refused = [](const std::function<void(NetworkConfig&)>& change,
                          const std::string& part) {
    NetworkConfig config = with_flow([](auto&, auto&) {});
    change(config);
    const auto [status, text] =
        refusal([&] { refuse(oversized(config, std::uint64_t{1} << 40U)); });
    CHECK(status == Status::NO_FREE_BURST_BUFFERS);
    CHECK_THAT(text, Catch::Contains(part) && Catch::Contains("lower"));
  };
  refused(
      [](auto& config) {
        config.rx_meta_buffers_ = 1048576;
        config.ifs_[0].rx_.queues_[1].common_.batch_size_ = 1048576;
      },
      "rx_meta_buffers 1048576 x batch_size 1048576 of queue 'q1'");
  refused(
      [](auto& config) {
        config.tx_meta_buffers_ = 1048576;
        config.ifs_[0].tx_.queues_[0].common_.batch_size_ = 1048576;
      },
      "tx_meta_buffers 1048576 x batch_size 1048576 of queue 'out'");
}

TEST_CASE("everything that is absent is named at once", "[engine]") {
  NetworkConfig config = with_flow([](InterfaceConfig& port, FlowConfig&) {
    ReorderConfig& plan = port.rx_.reorder_configs_.emplace_back();
    plan.name_ = "plan";
    plan.reorder_type_ = "gpu";
  });
  config.common_.engine_type = EngineType::IBVERBS;
  config.mrs_["pinned"] = {.name_ = "pinned", .kind_ = MemoryKind::HOST_PINNED, .position_ = 1};
  for (const char* name : {"gpu0", "gpu1"})
    config.mrs_[name] = {.name_ = name, .kind_ = MemoryKind::DEVICE, .position_ = 2};
  for (const char* name : {"huge0", "huge1"}) {
    config.mrs_[name] = {.name_ = name,
                         .kind_ = MemoryKind::HUGE,
                         .num_bufs_ = std::size_t{1} << 31U,
                         .buf_size_ = std::size_t{1} << 31U,
                         .position_ = 3};
  }
  const auto [status, text] = refusal([&] { refuse(find_refused(config, engine_for(config))); });
  CHECK(status == Status::NOT_SUPPORTED);
  for (const char* part : {"engine 'ibverbs' is not part of this build", "reorder config 'plan'",
                           "memory region 'pinned': kind 'host_pinned' needs CUDA",
                           "memory regions 'gpu0', 'gpu1': kind 'device' needs CUDA",
                           "memory regions 'huge0' (", "bytes of memory"})
    CHECK_THAT(text, Catch::Contains(part));
  CHECK(std::count(text.begin(), text.end(), '\n') == 5);

  // Both regions are in the sum and in the proposed fix.
  std::uint64_t own = 0;
  std::uint64_t all = 0;
  std::uint64_t reserve = 0;
  REQUIRE(std::sscanf(text.c_str() + text.find("'huge0' ("), "'huge0' (%lu), 'huge1' (", &own) ==
          1);
  REQUIRE(std::sscanf(text.c_str() + text.find(") need "), ") need %lu hugepages", &all) == 1);
  REQUIRE(std::sscanf(text.c_str() + text.find("echo "), "echo %lu |", &reserve) == 1);
  CHECK(own > 0);
  CHECK(all == 2 * own);
  CHECK(reserve >= all);
}
