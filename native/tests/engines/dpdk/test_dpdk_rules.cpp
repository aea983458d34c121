// Rules of devices (rte_flow) for flows: with them and without, packets arrive alike.
#include <catch2/catch.hpp>

#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <map>
#include <string>

#include "engines/dpdk/dpdk_module.h"
#include "frames.h"
#include "session/flow_changes.h"
#include "session/loopback_config.h"
#include "socket/own_network.h"
#include "system/file.h"
#include "timing/clock.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// Commands for in_own_network that fail where the kernel lacks what rules of net_tap need.
const std::initializer_list<std::string> TAP_WITH_RULES{
    "test -c /dev/net/tun", "ip tuntap add probe mode tap multi_queue",
    "tc qdisc add dev probe root handle 1: multiq",
    "tc filter add dev probe parent 1: protocol ip flower ip_proto udp action skbedit "
    "queue_mapping 0",
    "ip link del probe"};

/// Two queues, each with a thread, for UDP ports 5000 and 5001, and two queues of the device.
NetworkConfig tap_config() {
  NetworkConfig config = loopback_config();
  use_dpdk(config, {"net_tap0,iface=dtap0"});
  InterfaceConfig& port = config.ifs_[0];
  port.rx_.queues_[1].common_.cpu_core_ = "0";
  port.rx_.dynamic_flow_capacity_ = 10;
  port.tx_.queues_.push_back(port.tx_.queues_[0]);
  port.tx_.queues_[1].common_.name_ = "tx1";
  port.tx_.queues_[1].common_.id_ = 1;
  return config;
}

FlowConfig range_flow() {
  FlowConfig flow;
  flow.name_ = "range";
  flow.id_ = 20;
  flow.action_.id_ = 1;
  flow.match_.udp_dst_ = {6000, 6010};
  return flow;
}

FlowRuleConfig rule(const std::string& name, std::uint16_t port, std::uint16_t queue) {
  FlowRuleConfig rule;
  rule.name_ = name;
  rule.match_.udp_dst_ = port;
  rule.action_.id_ = queue;
  return rule;
}

std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> part;
  while (const std::size_t size = std::fread(part.data(), 1, part.size(), pipe))
    text.append(part.data(), size);
  pclose(pipe);
  return text;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

/// Rules of the tap for a UDP port, of the kernel's packet filter.
std::size_t rules_for(int port) {
  const std::string all = output_of("tc filter show dev dtap0 2>&1");
  return count(all, "dst_port " + std::to_string(port) + "\n");
}

/// Name to what selects its packets, for each flow.
std::map<std::string, std::string> offloads(const Session& session) {
  std::map<std::string, std::string> all;
  for (const auto& flow : session.port(0).flows->listed()) {
    // There is a reason, or rules.
    UNSCOPED_INFO(flow.config->name_ << " " << flow.offload << flow.offload_reason);
    CHECK(flow.offload.empty() != flow.offload_reason.empty());
    all.emplace(flow.config->name_, flow.offload);
  }
  return all;
}

/// Sends frames as the kernel does, through the tap's queueing discipline.
void send_from_kernel(const std::vector<std::uint8_t>& frame, int times = 1) {
  const File socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex("dtap0"));
  for (int i = 0; i < times; ++i) {
    REQUIRE(sendto(socket.fd(), frame.data(), frame.size(), 0,
                   reinterpret_cast<const sockaddr*>(&address),
                   sizeof address) == static_cast<ssize_t>(frame.size()));
  }
}

/// Flow ids of packets for `wanted` UDP port, of `count` that arrive within 10 s.
std::map<FlowId, std::size_t> receive_flows(RxQueue& rx, std::uint16_t wanted, std::size_t count) {
  std::map<FlowId, std::size_t> found;
  const std::uint64_t end = monotonic_ns() + 10'000'000'000U;
  for (std::size_t seen = 0; seen < count && monotonic_ns() < end;) {
    Burst* const burst = rx.receive();
    if (burst == nullptr) {
      rx.wait(50'000'000);
      continue;
    }
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
      const auto* const frame = static_cast<const std::uint8_t*>(burst->pkts[0][i]);
      // The kernel sends packets of its own.
      if (burst->pkt_lens[0][i] < 42 || frame[12] != 8 || (frame[36] << 8U | frame[37]) != wanted)
        continue;
      ++found[burst->flow_ids[i]];
      ++seen;
    }
    burst->release();
  }
  return found;
}

void check_arrival(Session& session, std::uint16_t port, int queue, FlowId flow) {
  send_from_kernel(udp_frame(port, 7), 50);
  INFO("port " << port);
  CHECK(receive_flows(session.rx_queue(0, queue), port, 50) ==
        std::map<FlowId, std::size_t>{{flow, 50}});
}

/// Packets of a VLAN, for both queues, and in a tunnel, which a tap has no rules for.
void add_other_flows(InterfaceConfig& port) {
  add_flow(port, 21, 1, {action_of(FlowType::VLAN_POP)}).match_.udp_dst_ = 5010;
  FlowConfig& both = add_flow(port, 22, 0);
  both.match_.udp_dst_ = 5011;
  both.action_.ids_ = {0, 1};
  both.actions_ = {both.action_};
  add_flow(port, 23, 0, {action_of(FlowType::TUNNEL_DECAP, tunnel_of(TunnelType::VXLAN))});
}

void bring_up() { REQUIRE(std::system("ip link set dtap0 up >/dev/null 2>&1") == 0); }

}  // namespace

TEST_CASE("a device without rules says so, for each flow", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  NetworkConfig config = loopback_config();
  use_dpdk(config, {"net_ring0"});
  config.ifs_[0].rx_.flow_isolation_ = GENERATE(false, true);
  config.ifs_[0].rx_.flows_.push_back(range_flow());
  const auto session = Session::open(config);
  static_cast<void>(session->flow_changes().add(0, {rule("late", 7000, 1)}));
  for (const auto& flow : session->port(0).flows->listed()) {
    CHECK(flow.offload.empty());
    CHECK_THAT(flow.offload_reason,
               Catch::Contains(flow.config->name_ == "range" ? "udp_dst is a range of ports"
                                                             : "not implemented"));
  }
  finish(*session);
}

TEST_CASE("flows of a tap arrive, with its rules or without", "[engines][dpdk]") {
  if (lacks_dpdk()) return;
  in_own_network({"test -c /dev/net/tun"}, [] {
    NetworkConfig config = tap_config();
    config.ifs_[0].rx_.flow_isolation_ = GENERATE(false, true);
    config.ifs_[0].rx_.flows_.push_back(range_flow());
    const auto session = Session::open(config);
    bring_up();
    offloads(*session);
    check_arrival(*session, 5000, 0, 10);
    check_arrival(*session, 5001, 1, 11);
    check_arrival(*session, 6005, 1, 20);
    finish(*session);
  });
}

TEST_CASE("rules of a tap come and go with their flows", "[engines][dpdk][rules]") {
  if (lacks_dpdk()) return;
  in_own_network(TAP_WITH_RULES, [] {
    NetworkConfig config = tap_config();
    config.ifs_[0].rx_.flows_.push_back(range_flow());
    for (int round = 0; round < 2; ++round) {
      const auto session = Session::open(config);
      bring_up();
      CHECK(offloads(*session) == std::map<std::string, std::string>{
                                      {"flow0", "hardware"}, {"flow1", "hardware"}, {"range", ""}});
      // One each for IPv4 and IPv6.
      CHECK(rules_for(5000) == 2);
      CHECK(rules_for(5001) == 2);
      check_arrival(*session, 5000, 0, 10);
      check_arrival(*session, 5001, 1, 11);
      const auto late = session->flow_changes().add(0, {rule("late", 7000, 1)}).at(0);
      CHECK(rules_for(7000) == 2);
      check_arrival(*session, 7000, 1, late.flow.id_);
      // The same packets for another queue: the kernel has one rule for them.
      const auto newer = session->flow_changes().add(0, {rule("newer", 5000, 1)}).at(0);
      CHECK(offloads(*session).at("newer").empty());
      check_arrival(*session, 5000, 1, newer.flow.id_);
      session->flow_changes().remove(newer.flow.id_);
      check_arrival(*session, 5000, 0, 10);
      session->flow_changes().remove(late.flow.id_);
      CHECK(rules_for(7000) == 0);
      check_arrival(*session, 7000, 0, 0);
      finish(*session);
      CHECK(if_nametoindex("dtap0") == 0);
    }
  });
}

TEST_CASE("packets that the engine changes arrive alike, with rules or without",
          "[engines][dpdk][rules]") {
  if (lacks_dpdk()) return;
  in_own_network(TAP_WITH_RULES, [] {
    NetworkConfig config = tap_config();
    add_other_flows(config.ifs_[0]);
    const auto session = Session::open(config);
    bring_up();
    CHECK(offloads(*session).at("flow1") == "hardware");
    CHECK(offloads(*session).at("flow23").empty());
    send_from_kernel(tagged(udp_frame(5010, 7), {0x8100}), 50);
    CHECK(receive_flows(session->rx_queue(0, 1), 5010, 50) ==
          std::map<FlowId, std::size_t>{{21, 50}});
    send_from_kernel(udp_frame(5011, 7), 50);
    const auto both = udp_frame(5011, 7);
    const int queue = session->port(0)
                          .steering.program()
                          ->classify(steering::PacketView::of_frame(
                              both.data(), static_cast<std::uint32_t>(both.size())))
                          .queue;
    CHECK(receive_flows(session->rx_queue(0, queue), 5011, 50) ==
          std::map<FlowId, std::size_t>{{22, 50}});
    send_from_kernel(in_tunnel(udp_frame(5012, 7)), 50);
    CHECK(receive_flows(session->rx_queue(0, 0), 5012, 50) ==
          std::map<FlowId, std::size_t>{{23, 50}});
    finish(*session);
  });
}

TEST_CASE("a flow that is changed has other rules", "[engines][dpdk][rules]") {
  if (lacks_dpdk()) return;
  in_own_network(TAP_WITH_RULES, [] {
    const NetworkConfig config = tap_config();
    const auto session = Session::open(config);
    bring_up();
    std::vector<FlowConfig> flows = session->port(0).flows->configured();
    flows[0].action_.id_ = 1;
    session->port(0).flows->configure(flows);
    CHECK(offloads(*session).at("flow0") == "hardware");
    CHECK(rules_for(5000) == 2);
    check_arrival(*session, 5000, 1, 10);
    flows[0].match_.udp_dst_ = 5002;
    session->port(0).flows->configure(flows);
    CHECK(rules_for(5000) == 0);
    CHECK(rules_for(5002) == 2);
    check_arrival(*session, 5002, 1, 10);
    finish(*session);
  });
}

TEST_CASE("a tap that isolates flows gives the engine no other packets", "[engines][dpdk][rules]") {
  if (lacks_dpdk()) return;
  in_own_network(TAP_WITH_RULES, [] {
    NetworkConfig config = tap_config();
    config.ifs_[0].rx_.flow_isolation_ = true;
    const auto session = Session::open(config);
    bring_up();
    RxQueue& rx = session->rx_queue(0, 0);
    const auto filtered = [&] {
      return rx.counters().dropped[static_cast<std::size_t>(DropReason::FILTERED)];
    };
    const std::uint64_t before = filtered();
    send_from_kernel(udp_frame(7000, 7), 50);
    check_arrival(*session, 5000, 0, 10);
    CHECK(filtered() == before);
    // Without a rule for one flow, every packet reaches the engine, which filters.
    FlowRuleConfig ports = rule("ports", 0, 1);
    ports.match_.udp_dst_ = {6000, 6010};
    const auto late = session->flow_changes().add(0, {ports}).at(0);
    CHECK(offloads(*session).at("ports").empty());
    check_arrival(*session, 6005, 1, late.flow.id_);
    send_from_kernel(udp_frame(7000, 7), 50);
    check_arrival(*session, 5000, 0, 10);
    check_arrival(*session, 6005, 1, late.flow.id_);
    CHECK(filtered() >= before + 50);
    session->flow_changes().remove(late.flow.id_);
    const std::uint64_t then = filtered();
    send_from_kernel(udp_frame(6005, 7), 50);
    check_arrival(*session, 5001, 1, 11);
    check_arrival(*session, 5000, 0, 10);
    CHECK(filtered() == then);
    finish(*session);
  });
}
