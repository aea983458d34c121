// Transmit and receive flows that change packets, on a loopback.
#include <catch2/catch.hpp>

#include "frames.h"
#include "net/headers.h"
#include "session/loopback_config.h"
#include "session/single_packets.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

using Bytes = std::vector<std::uint8_t>;

/// Flow 1 leads to queue 1; unmatched packets go to queue 0.
NetworkConfig config_of(const std::vector<FlowAction>& push, const std::vector<FlowAction>& take) {
  auto config = loopback_config();
  InterfaceConfig& port = config.ifs_[0];
  port.rx_.flows_.clear();
  if (!take.empty()) add_flow(port, 1, 1, take);
  if (!push.empty()) {
    FlowConfig& flow = port.tx_.flows_.emplace_back();
    flow.name_ = "out";
    flow.id_ = 2;
    flow.actions_ = push;
    flow.action_ = push.back();
  }
  return config;
}

/// Splits transmit and receive segments after 20 bytes.
void split(NetworkConfig& config) {
  for (const char* name : {"rx_headers", "tx_headers"}) {
    config.mrs_[name] = config.mrs_.at("rx_frames");
    config.mrs_[name].name_ = name;
    config.mrs_[name].buf_size_ = 20;
  }
  config.ifs_[0].tx_.queues_[0].common_.mrs_ = {"tx_headers", "tx_frames"};
  for (RxQueueConfig& queue : config.ifs_[0].rx_.queues_)
    queue.common_.mrs_ = {"rx_headers", "rx_frames"};
}

FlowAction tunnel(FlowType action, TunnelType type) { return action_of(action, tunnel_of(type)); }
const FlowAction POP = action_of(FlowType::VLAN_POP);

}  // namespace

TEST_CASE("what a transmit flow puts on a receive flow takes off", "[session]") {
  const auto type = GENERATE(TunnelType::VXLAN, TunnelType::GRE, TunnelType::NVGRE);
  auto config = config_of({push_of(5), tunnel(FlowType::TUNNEL_ENCAP, type), push_of(6)},
                          {POP, tunnel(FlowType::TUNNEL_DECAP, type), POP});
  std::vector<std::uint32_t> cuts{0};
  SECTION("whole packets") {}
  SECTION("segments") {
    split(config);
    cuts = {0, 1, 12, 13, 14, 20};
  }
  SECTION("the same buffers") {
    for (RxQueueConfig& queue : config.ifs_[0].rx_.queues_) queue.common_.mrs_ = {"tx_frames"};
  }
  const auto session = Session::open(config);
  for (const std::uint32_t cut : cuts) {
    for (const int payload : {0, 10, 1400}) {
      FrameFields fields;
      fields.payload = static_cast<std::uint16_t>(payload);
      const Bytes packet = make_frame(fields);
      send(*session, packet, cut);
      CHECK(receive(*session, 1) == std::pair{packet, FlowId{1}});
    }
  }
  const RxSnapshot counters = session->rx_queue(0, 1).counters();
  CHECK(counters.received == 3 * cuts.size());
  CHECK(balanced(counters));
  const FlowSnapshot flow = session->port(0).steering.counts(0);
  CHECK(flow.packets == counters.received);
  CHECK(flow.bytes == counters.received_bytes);
  // Sent bytes count as they are on the wire.
  const std::uint64_t overhead = 8U + (type == TunnelType::VXLAN ? 50U
                                       : type == TunnelType::GRE ? 38U
                                                                 : 42U);
  CHECK(session->tx_queue(0, 0).wait_idle(10'000'000'000));
  CHECK(session->tx_queue(0, 0).counters().sent_bytes ==
        counters.received_bytes + overhead * counters.received);
}

TEST_CASE("a packet arrives as its transmit flow made it", "[session]") {
  auto config = config_of({push_of(7, 0x88A8)}, {});
  FlowConfig& flow = config.ifs_[0].tx_.flows_[0];
  flow.match_.udp_dst_ = 2000;
  const bool segments = GENERATE(false, true);
  if (segments) split(config);
  const auto session = Session::open(config);
  FrameFields fields;
  send(*session, make_frame(fields), 14);
  Bytes expected = tagged(make_frame(fields), {0x88A8});
  put16(expected, 14, 3U << 13U | 1U << 12U | 7U);
  CHECK(receive(*session, 0).first == expected);
  fields.udp_dst = 2001;
  send(*session, make_frame(fields), 14);
  CHECK(receive(*session, 0).first == make_frame(fields));
  // Conditions match only packets without tags; a flow without conditions matches all packets.
  fields.udp_dst = 2000;
  send(*session, tagged(make_frame(fields), {0x8100}), 14);
  CHECK(receive(*session, 0).first == tagged(make_frame(fields), {0x8100}));
}

TEST_CASE("a transmit flow without conditions has all packets", "[session]") {
  const auto session = Session::open(config_of({push_of(7)}, {}));
  Bytes packet(14, 0x11);
  for (const Bytes& each : {packet, tagged(make_frame({}), {0x8100}), ecpri_frame(0, 1)}) {
    send(*session, each);
    const Bytes arrived = receive(*session, 0).first;
    CHECK(arrived.size() == each.size() + 4);
    CHECK(arrived[12] == 0x81);
  }
}

TEST_CASE("the first transmit flow that matches wins", "[session]") {
  auto config = config_of({push_of(1)}, {});
  auto& flows = config.ifs_[0].tx_.flows_;
  flows[0].match_.udp_dst_ = 2000;
  flows.push_back(flows[0]);
  flows[1].name_ = "all";
  flows[1].id_ = 3;
  flows[1].match_ = {};
  flows[1].actions_ = {push_of(2)};
  flows.push_back(flows[0]);
  flows[2].name_ = "late";
  flows[2].id_ = 4;
  flows[2].match_.udp_dst_ = 2001;
  const auto session = Session::open(config);
  for (std::uint16_t port = 2000; port < 2002; ++port) {
    FrameFields fields;
    fields.udp_dst = port;
    send(*session, make_frame(fields));
    CHECK(receive(*session, 0).first[15] == (port == 2000 ? 1 : 2));
  }
}

TEST_CASE("a packet that its transmit flow cannot change is a send error", "[session]") {
  TunnelConfig gre = tunnel_of(TunnelType::GRE);
  gre.gre_protocol_ = 0x0800;
  const auto session = Session::open(config_of({action_of(FlowType::TUNNEL_ENCAP, gre)}, {}));
  TxQueue& tx = session->tx_queue(0, 0);
  send(*session, ecpri_frame(0, 1));
  send(*session, Bytes(13));
  send(*session, make_frame({}));
  CHECK(receive(*session, 0).first.size() == make_frame({}).size() + 24);
  CHECK(tx.wait_idle(10'000'000'000));
  const TxSnapshot counters = tx.counters();
  CHECK(counters.sent == 1);
  CHECK(counters.dropped[static_cast<std::size_t>(DropReason::SEND_ERROR)] == 2);
  CHECK(balanced(counters));
}

TEST_CASE("buffers are for packets without their tunnel", "[session]") {
  auto config = config_of({tunnel(FlowType::TUNNEL_ENCAP, TunnelType::VXLAN)},
                          {tunnel(FlowType::TUNNEL_DECAP, TunnelType::VXLAN)});
  config.ifs_[0].rx_.flows_[0].match_.udp_dst_ = 2000;
  const auto session = Session::open(config);
  FrameFields fields;
  fields.payload = 2048 - 42;
  send(*session, make_frame(fields));
  CHECK(receive(*session, 1).first == make_frame(fields));
  // If the tunnel is not removed, the packet is too long.
  fields.udp_dst = 2001;
  send(*session, make_frame(fields));
  CHECK(dropped(session->rx_queue(0, 0), DropReason::TRUNCATED) == 1);
}

TEST_CASE("packets that cannot be taken out of their tunnel are dropped", "[session]") {
  const auto session =
      Session::open(config_of({}, {tunnel(FlowType::TUNNEL_DECAP, TunnelType::VXLAN)}));
  OuterFields outer;
  outer.fragment = 0x2000;
  const Bytes fragment = in_tunnel(make_frame({}), outer);
  send(*session, fragment);
  RxQueue& rx = session->rx_queue(0, 1);
  CHECK(dropped(rx, DropReason::MALFORMED) == 1);
  send(*session, in_tunnel(make_frame({})));
  CHECK(receive(*session, 1).first == make_frame({}));
  const FlowSnapshot flow = session->port(0).steering.counts(0);
  CHECK(flow.packets == 2);
  CHECK(flow.bytes == fragment.size() + make_frame({}).size());
  CHECK(balanced(rx.counters()));
  CHECK(session->rx_queue(0, 0).counters().received == 0);
}

TEST_CASE("tx_eth_src is the source of the packet, the tunnel's of the frame around it",
          "[session]") {
  auto config = config_of({tunnel(FlowType::TUNNEL_ENCAP, TunnelType::VXLAN)}, {});
  config.ifs_[0].tx_.queues_[0].common_.offloads_ = {"tx_eth_src"};
  const auto session = Session::open(config);
  send(*session, make_frame({}));
  const Bytes arrived = receive(*session, 0).first;
  const auto mac = session->port(0).io->mac_address();
  CHECK(std::equal(mac.begin(), mac.end(), arrived.begin() + 50 + 6));
  CHECK(load_be16(&arrived[6]) == 0x2627);
}
