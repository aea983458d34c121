// Packets whose second pieces a card writes to a GPU.
#include <catch2/catch.hpp>

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "daqiri/error.h"
#include "engines/dpdk/dpdk_module.h"
#include "engines/dpdk/memory_device.h"
#include "engines/dpdk/other_process.h"
#include "engines/dpdk/simulated_gpu.h"
#include "frames.h"
#include "log_taker.h"
#include "session/flow_changes.h"
#include "session/loopback_config.h"
#include "session/single_packets.h"
#include "session/snapshot.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr const char* WRITTEN = "a card of DPDK writes packets to a GPU";
constexpr const char* SHARED = "memory of a GPU that two devices of DPDK use";
constexpr const char* BEHIND = "a card of DPDK writes headers to a GPU";
constexpr const char* CHANGING = "flows that would change packets on a GPU";
constexpr const char* LONG = "flows that match bytes on a GPU";
constexpr const char* STAGED = "a card of DPDK does not write packets to a GPU";

constexpr std::uint32_t FIRST_PIECE = 64;
/// Longest packet that the memory regions take.
constexpr std::uint32_t MOST = FIRST_PIECE + 1440;

/// Whether the tests use the first GPU of this host (DAQIRI_TEST_GPU=1), not a simulated one.
bool has_gpu() {
  const char* const given = std::getenv("DAQIRI_TEST_GPU");
  return given != nullptr && std::string(given) == "1";
}

int copy_by_driver(unsigned long long to, const void* from, std::size_t bytes, void*) {
  const cuda::Context context("a test");
  const cuda::Functions& call = context.driver().call();
  const int error = call.copy_to_gpu(to, from, bytes, nullptr);
  return error == 0 ? call.synchronize() : error;
}

int copy_to_simulated(unsigned long long to, const void* from, std::size_t bytes, void*) {
  std::memcpy(GpuRegion::latest->gpu().reached(to), from, bytes);
  return 0;
}

/// A GPU, and a device that is a card, which says this error when it is to reach the GPU.
struct GpuCard {
  explicit GpuCard(int error = 0) {
    GpuMemory::mappings = device.mappings_of_gpus;
    if (!has_gpu()) GpuRegion::register_gpu();
    device.be_card(has_gpu() ? copy_by_driver : copy_to_simulated, error);
  }

  MemoryDevice device;
};

NetworkConfig gpu_config(std::uint32_t boundary = FIRST_PIECE) {
  NetworkConfig config = loopback_config();
  use_dpdk(config, {"net_ring0"});
  add_region(config, "rx_headers", "rx_frames", 256);
  config.mrs_.at("rx_frames").kind_ = MemoryKind::DEVICE;
  config.mrs_.at("rx_frames").buf_size_ = MOST - FIRST_PIECE;
  for (RxQueueConfig& queue : config.ifs_[0].rx_.queues_) {
    queue.common_.mrs_ = {"rx_headers", "rx_frames"};
    queue.common_.split_boundary_ = static_cast<int>(boundary);
  }
  config.ifs_[0].rx_.dynamic_flow_capacity_ = 10;
  return config;
}

std::string gpu_path_of(Session& session) {
  return receive_path_of(session.port(0), session.rx_queue(0, 0));
}

/// Both pieces of the only packet of a burst.
std::vector<std::uint8_t> bytes_of(const Burst& burst) {
  const auto* const first = static_cast<const std::uint8_t*>(burst.pkts[0][0]);
  std::vector<std::uint8_t> bytes(first, first + burst.pkt_lens[0][0]);
  bytes.resize(bytes.size() + burst.pkt_lens[1][0]);
  if (burst.pkt_lens[1][0] == 0) return bytes;
  REQUIRE(burst.owners[1]->copy_to_host(burst.pkts[1][0], &bytes[burst.pkt_lens[0][0]],
                                        burst.pkt_lens[1][0]));
  return bytes;
}

std::string refusal_of(Session& session, const FlowRuleConfig& rule) {
  try {
    static_cast<void>(session.flow_changes().add(0, {rule}));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE(WRITTEN, "[.]") {
  const GpuCard gpu;
  NetworkConfig config = gpu_config();
  SECTION("for the poller that reads the card") {}
  SECTION("for another poller, too") { config.ifs_[0].rx_.queues_[1].common_.cpu_core_ = "0"; }
  const auto session = Session::open(config);
  CHECK(gpu_path_of(*session) == "split by the device, into GPU 0");
  CHECK(gpu.device.mappings_of_gpus() == 1);
  CHECK(gpu.device.latest_pages() == memory::GPU_PAGE);
  for (const std::uint32_t size : {60U, FIRST_PIECE, FIRST_PIECE + 1, 128U, 1500U}) {
    for (int queue = 0; queue < 2; ++queue) {
      CAPTURE(size, queue);
      const auto frame = udp_frame(static_cast<std::uint16_t>(5000 + queue), size, size);
      send(*session, frame);
      Burst* const burst = next_burst(session->rx_queue(0, queue));
      REQUIRE(burst->num_packets() == 1);
      CHECK(burst->flow_ids[0] == static_cast<FlowId>(10 + queue));
      CHECK(burst->is_on_device(1));
      CHECK(!burst->host_readable(1));
      // Where the card has put it.
      if (size > FIRST_PIECE) CHECK(burst->pkts[1][0] == gpu.device.latest(1));
      CHECK(burst->pkt_lens[0][0] == std::min(size, FIRST_PIECE));
      CHECK(bytes_of(*burst) == frame);
      // For files.
      burst->copy_to_host(memory::DeviceCopies::Behind::COPIES);
      CHECK(std::equal(frame.begin() + burst->pkt_lens[0][0], frame.end(),
                       reinterpret_cast<const std::uint8_t*>(burst->on_host(1, 0))));
      burst->release();
    }
  }
  // More than there are buffers: they come back.
  REQUIRE(send_frames(session->tx_queue(0, 0), 5000, 0, 5000));
  CHECK(receive_numbers(session->rx_queue(0, 0), 5000).size() == 5000);
  CHECK(gpu.device.missed() == 0);
  // Longer than both buffers.
  send(*session, udp_frame(5000, 1, MOST + 1));
  CHECK(dropped(session->rx_queue(0, 0), DropReason::TRUNCATED) == 1);
  send(*session, udp_frame(5000, 2, MOST));
  Burst* const burst = next_burst(session->rx_queue(0, 0));
  CHECK(bytes_of(*burst) == udp_frame(5000, 2, MOST));
  burst->release();
  finish(*session);
  CHECK(gpu.device.mappings_of_gpus() == 0);
}

TEST_CASE(SHARED, "[.]") {
  const GpuCard gpu;
  NetworkConfig config = gpu_config();
  config.ifs_.push_back(config.ifs_[0]);
  config.ifs_[1].name_ = "port1";
  config.ifs_[1].rx_.flows_.clear();
  SECTION("by two cards that write to it") {
    use_dpdk(config, {"net_ring0", "net_ring1"});
    const auto session = Session::open(config);
    for (int port = 0; port < 2; ++port) {
      CHECK(receive_path_of(session->port(port), session->rx_queue(port, 0)) ==
            "split by the device, into GPU 0");
    }
    CHECK(gpu.device.mappings_of_gpus() == 1);
    finish(*session);
  }
  SECTION("by two cards, of which one does not split packets") {
    use_dpdk(config, {"net_ring0", "net_ring1"});
    config.ifs_[1].rx_.queues_[1].common_.split_boundary_ = 60;
    const auto session = Session::open(config);
    CHECK(gpu_path_of(*session) == "split by the device, staged to GPU 0");
    finish(*session);
  }
  SECTION("by a card, and one that is not there") {
    use_dpdk(config, {"net_ring0", "net_nothing1"});
    CHECK_THROWS_WITH(Session::open(config), Catch::Contains("'net_nothing1'"));
  }
  CHECK(gpu.device.mappings_of_gpus() == 0);
  CHECK(!GpuMemory::freed_while_mapped);
}

TEST_CASE(BEHIND, "[.]") {
  const GpuCard gpu;
  NetworkConfig config = gpu_config(HEADERS_SIZE);
  config.log_level_ = LogLevel::WARN;
  LogTaker log;
  const auto session = Session::open(config);
  const auto check = [&](const std::vector<std::uint8_t>& frame, int queue, FlowId flow) {
    send(*session, frame);
    Burst* const burst = next_burst(session->rx_queue(0, queue));
    CHECK(burst->flow_ids[0] == flow);
    CHECK(bytes_of(*burst) == frame);
    burst->release();
  };
  check(udp_frame(5001, 1, 400), 1, 11);
  CHECK(log.lines_with("read back") == 0);
  FrameFields fields;
  fields.udp_dst = 5001;
  fields.payload = 300;
  check(make_ipv6_frame(fields), 1, 11);
  check(make_ipv6_frame(fields, {{}, {}}), 1, 11);
  fields.header_words = 12;
  check(make_frame(fields), 1, 11);
  // The flow is for frames without tags; that of a priority is none.
  check(tagged(udp_frame(5001, 2, 400), {0x8100}), 0, 0);
  check(tagged_with_ids(udp_frame(5001, 3, 400), {0}), 1, 11);
  CHECK(log.lines_with("packets have headers after their first 42 bytes") == 1);
  if (!has_gpu()) {
    // Without its headers, a packet has no flow.
    GpuRegion::bad_copies = 1;
    send(*session, make_frame(fields));
    check(make_frame(fields), 1, 11);
    CHECK(dropped(session->rx_queue(0, 0), DropReason::TRUNCATED) == 1);
  }
  finish(*session);
}

TEST_CASE(CHANGING, "[.]") {
  const GpuCard gpu;
  const auto session = Session::open(gpu_config());
  FlowRuleConfig rule;
  rule.name_ = "late";
  rule.action_.id_ = 1;
  rule.match_.udp_dst_ = 7000;
  rule.actions_ = {action_of(FlowType::VLAN_POP), rule.action_};
  CHECK_THAT(refusal_of(*session, rule),
             Catch::Contains("flow 'late'") &&
                 Catch::Contains("the flow removes headers (vlan_pop, tunnel_decap)") &&
                 Catch::Contains("memory region 'rx_frames' on GPU 0"));
  rule.actions_ = {rule.action_};
  CHECK(refusal_of(*session, rule).empty());
  finish(*session);
}

TEST_CASE(LONG, "[.]") {
  const GpuCard gpu;
  NetworkConfig config = gpu_config(50);
  RxConfig& rx = config.ifs_[0].rx_;
  rx.flex_items_ = {{.name_ = "first", .id_ = 1, .offset_ = 0, .udp_dst_port_ = 5000},
                    {.name_ = "third", .id_ = 2, .offset_ = 8, .udp_dst_port_ = 5000}};
  for (FlowConfig& flow : rx.flows_) {
    flow.match_ = {};
    flow.match_.type_ = FlowMatchType::FLEX_ITEM;
    flow.match_.flex_item_match_ = {1, flow.id_, UINT32_MAX};
  }
  const auto session = Session::open(config);
  CHECK(gpu_path_of(*session) == "split by the device, into GPU 0");
  FlowRuleConfig rule;
  rule.name_ = "late";
  rule.action_.id_ = 1;
  rule.match_ = rx.flows_[0].match_;
  rule.match_.flex_item_match_.val_ = htonl(99);
  rule.match_.flex_item_match_.flex_item_id_ = 2;
  CHECK_THAT(refusal_of(*session, rule),
             Catch::Contains("flow 'late'") &&
                 Catch::Contains("what the flow matches ends after 54 bytes of a frame, and the "
                                 "first memory region gets 50 (split_boundary, buf_size)"));
  rule.match_.flex_item_match_.flex_item_id_ = 1;
  CHECK(refusal_of(*session, rule).empty());
  const auto frame = udp_frame(5000, 99, 300);
  send(*session, frame);
  Burst* const burst = next_burst(session->rx_queue(0, 1));
  CHECK(bytes_of(*burst) == frame);
  CHECK(burst->flow_ids[0] > MAX_STATIC_FLOW_ID);
  burst->release();
  finish(*session);
}

TEST_CASE(STAGED, "[.]") {
  NetworkConfig config = gpu_config();
  InterfaceConfig& port = config.ifs_[0];
  const auto for_queues = [&](auto change) {
    for (RxQueueConfig& queue : port.rx_.queues_) change(queue.common_);
  };
  int error = 0;
  bool is_card = true;
  std::string why;
  std::string path = "split by the device";
  SECTION("the CPU reads headers") {
    for_queues([](CommonQueueConfig& queue) { queue.mrs_ = {"rx_frames", "rx_headers"}; });
    why = "receive queue 'rx0' does not have it as the second of two memory regions";
  }
  SECTION("packets have three pieces") {
    add_region(config, "rx_middle", "rx_headers", 256);
    for_queues(
        [](CommonQueueConfig& queue) { queue.mrs_ = {"rx_headers", "rx_middle", "rx_frames"}; });
    why = "receive queue 'rx0' does not have it as the second of two memory regions";
  }
  SECTION("a transmit queue uses the memory") {
    port.tx_.queues_[0].common_.mrs_ = {"tx_frames", "rx_frames"};
    why = "transmit queue 'tx0' uses the memory region, too";
  }
  SECTION("a flow removes headers") {
    std::vector<FlowAction>& actions = port.rx_.flows_[1].actions_;
    actions.insert(actions.begin(), action_of(FlowType::VLAN_POP));
    why = "flow 'flow1': the flow removes headers (vlan_pop, tunnel_decap)";
  }
  SECTION("headers are longer than the first piece") {
    for_queues([](CommonQueueConfig& queue) { queue.split_boundary_ = 41; });
    why =
        "flow 'flow0': what the flow matches ends after 42 bytes of a frame, and the first "
        "memory region gets 41";
  }
  SECTION("the device splits nothing") {
    for_queues([](CommonQueueConfig& queue) { queue.split_boundary_ = queue.id_ == 0 ? 64 : 65; });
    why = "receive queues of the interface differ in memory_regions or split_boundary";
    path = "split by the engine";
  }
  SECTION("the device is no card") {
    is_card = false;
    why = "the device is no card";
  }
  SECTION("the card does not reach the GPU") {
    error = EFAULT;
    why =
        "the card cannot have its memory: Bad address; a ConnectX needs the kernel module "
        "nvidia-peermem";
  }
  const GpuCard gpu(error);
  if (!is_card) gpu.device.be_card(nullptr, 0);
  const auto session = Session::open(config);
  CHECK_THAT(GpuRegion::why_staged, Catch::StartsWith("interface 'port0': " + why));
  CHECK(gpu_path_of(*session) == path + ", staged to GPU 0");
  CHECK(gpu.device.mappings_of_gpus() == 0);
  finish(*session);
}

TEST_CASE("a card writes packets to a GPU", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(WRITTEN) == 0);
}

TEST_CASE("cards that share memory of a GPU all write to it, or none", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(SHARED) == 0);
}

TEST_CASE("headers that a card has written to a GPU are found", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(BEHIND) == 0);
}

TEST_CASE("flows that would change packets on a GPU are refused", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(CHANGING) == 0);
  CHECK(run_in_other_process(LONG) == 0);
}

TEST_CASE("packets reach a GPU by way of host memory where no card writes to it",
          "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  CHECK(run_in_other_process(STAGED) == 0);
}
