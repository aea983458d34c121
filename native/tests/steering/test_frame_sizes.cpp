#include <catch2/catch.hpp>

#include "frames.h"
#include "steering/frame_sizes.h"

using namespace daqiri;
using namespace daqiri::test;
using steering::least_removed;
using steering::mtu_needed;

namespace {

using Bytes = std::vector<std::uint8_t>;

/// A receive and a transmit queue with buffers of these sizes, one of each region.
NetworkConfig with_buffers(std::vector<std::uint64_t> rx, std::vector<std::uint64_t> tx) {
  NetworkConfig config;
  InterfaceConfig& interface = config.ifs_.emplace_back();
  const auto fill = [&](CommonQueueConfig& queue, const std::vector<std::uint64_t>& sizes) {
    for (const std::uint64_t size : sizes) {
      const std::string name = "region" + std::to_string(config.mrs_.size());
      config.mrs_[name].buf_size_ = size;
      queue.mrs_.push_back(name);
    }
  };
  if (!rx.empty()) fill(interface.rx_.queues_.emplace_back().common_, rx);
  if (!tx.empty()) fill(interface.tx_.queues_.emplace_back().common_, tx);
  return config;
}

std::uint32_t needed(const NetworkConfig& config) { return mtu_needed(config, config.ifs_[0]); }

FlowAction tunnel(FlowType what, TunnelType type, std::uint16_t gre_protocol = 0x6558) {
  TunnelConfig tunnel;
  tunnel.type_ = type;
  tunnel.gre_protocol_ = gre_protocol;
  tunnel.outer_eth_src_ = "02:00:00:00:00:01";
  tunnel.outer_eth_dst_ = "02:00:00:00:00:02";
  tunnel.outer_ipv4_src_ = "10.0.0.1";
  tunnel.outer_ipv4_dst_ = "10.0.0.2";
  return action_of(what, tunnel);
}

}  // namespace

TEST_CASE("Buffers tell which MTU their frames need", "[steering]") {
  struct Case {
    std::vector<std::uint64_t> rx, tx;
    std::uint32_t mtu;
  };
  const Case each = GENERATE(values<Case>({
      {{2048}, {2048}, 0},     // usual buffers tell nothing
      {{2049}, {}, 2027},      //
      {{}, {9000}, 8986},      //
      {{64, 8192}, {}, 8234},  // a packet has a buffer of each region
      {{65536}, {2048}, 9000}  // larger than any frame
  }));
  CHECK(needed(with_buffers(each.rx, each.tx)) == each.mtu);
}

TEST_CASE("Headers of transmit flows need a larger MTU, one VLAN tag does not", "[steering]") {
  const FlowAction push = action_of(FlowType::VLAN_PUSH);
  struct Case {
    std::vector<FlowAction> actions;
    std::uint32_t more;
  };
  const Case each = GENERATE_COPY(
      values<Case>({{{push}, 0},
                    {{tunnel(FlowType::TUNNEL_ENCAP, TunnelType::VXLAN)}, 50},
                    {{tunnel(FlowType::TUNNEL_ENCAP, TunnelType::VXLAN), push}, 50},
                    {{tunnel(FlowType::TUNNEL_ENCAP, TunnelType::NVGRE)}, 42},
                    {{tunnel(FlowType::TUNNEL_ENCAP, TunnelType::GRE, 0x0800)}, 24}}));
  for (const std::uint64_t size : {1000, 2048, 9000}) {
    NetworkConfig config = with_buffers({}, {size});
    FlowConfig& flow = config.ifs_[0].tx_.flows_.emplace_back();
    flow.actions_ = each.actions;
    const std::uint32_t frame = size == 2048 ? 1514 : static_cast<std::uint32_t>(size);
    CHECK(needed(config) == (each.more == 0 && size <= 2048 ? 0 : frame - 14 + each.more));
  }
}

TEST_CASE("Datagrams need an MTU for their headers, streams none", "[steering]") {
  NetworkConfig config = with_buffers({65536}, {});
  SocketConfig& socket = config.ifs_[0].socket_;
  socket.mode_ = SocketMode::SERVER;
  socket.local_addr_ = "udp://10.0.0.1:1";
  socket.local_ip_ = "10.0.0.1";
  CHECK(needed(config) == 9000);
  socket.max_payload_size_ = 1472;
  CHECK(needed(config) == 1500);
  socket.local_ip_ = "fe80::1";
  CHECK(needed(config) == 1520);
  socket.local_addr_ = "tcp://[fe80::1]:1";
  CHECK(needed(config) == 0);
}

TEST_CASE("What flows remove from each packet of a queue", "[steering]") {
  const auto type = GENERATE(TunnelType::VXLAN, TunnelType::GRE, TunnelType::NVGRE);
  auto interface = interface_with_queues(3);
  add_flow(interface, 1, 1, {tunnel(FlowType::TUNNEL_DECAP, type)});
  const Bytes inner = make_frame({});
  OuterFields outer;
  outer.type = type;
  const std::size_t headers = in_tunnel(inner, outer).size() - inner.size();
  CHECK(least_removed(interface, 1) == headers);
  CHECK(least_removed(interface, 2) == 0);
  add_flow(interface, 2, 1, {tunnel(FlowType::TUNNEL_DECAP, type), action_of(FlowType::VLAN_POP)});
  CHECK(least_removed(interface, 1) == headers);
  // The first queue receives what no flow matches, except under flow_isolation.
  add_flow(interface, 3, 0, {action_of(FlowType::VLAN_POP)});
  CHECK(least_removed(interface, 0) == 0);
  interface.rx_.flow_isolation_ = true;
  CHECK(least_removed(interface, 0) == 4);
  add_flow(interface, 4, 1, {});
  CHECK(least_removed(interface, 1) == 0);
}
