// The documented configuration at its limits: defaults, the first and last accepted values, and the
// first rejected values.
#include "documents.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

const std::string QUEUE = "interfaces[0].rx.queues[0]";
const std::string FLOW = "interfaces[0].rx.flows[0]";

/// `document` with `what` replaced; must load without problems.
NetworkConfig with(const char* document, std::string_view what, std::string_view by) {
  return require_clean(replaced(document, what, by));
}
void refuses(const char* document, std::string_view what, std::string_view by,
             const std::string& path, std::string_view message) {
  require_error(replaced(document, what, by), path, std::string(message));
}

/// SOCKET with additional clients.
std::string with_clients(int count) {
  std::string text = SOCKET;
  for (int i = 0; i < count; ++i)
    text += "- {name: c" + std::to_string(i) +
            ", address: 127.0.0.1, socket_config: {mode: client, remote_addr: "
            "\"udp://127.0.0.1:5001\"}, tx: {queues: [{name: q, id: 0, cpu_core: 1, batch_size: 1, "
            "memory_regions: [buffers]}]}}\n";
  return text;
}

}  // namespace

TEST_CASE("keys that are left out have the documented defaults", "[config][documented]") {
  const NetworkConfig socket = require_clean(SOCKET);
  CHECK(socket.log_level_ == LogLevel::WARN);
  CHECK_FALSE(socket.debug_);
  CHECK(socket.tx_meta_buffers_ == 256);
  CHECK(socket.rx_meta_buffers_ == 256);
  const MemoryRegionConfig& region = socket.mrs_.at("buffers");
  CHECK(region.affinity_ == 0);
  CHECK(region.access_ == MEM_ACCESS_LOCAL);
  CHECK(region.owned_);
  const SocketConfig& client = socket.ifs_[1].socket_;
  CHECK(client.max_payload_size_ == 0);
  CHECK(client.max_burst_interval_ms_ == 0);
  CHECK(client.min_ipg_ns_ == 0);
  CHECK(client.retry_connect_s_ == 1);
  const RxConfig& rx = socket.ifs_[0].rx_;
  CHECK_FALSE(rx.flow_isolation_);
  CHECK_FALSE(rx.hardware_timestamps_);
  CHECK(rx.dynamic_flow_capacity_ == 0);
  CHECK(rx.queues_[0].timeout_us_ == 0);
  CHECK(rx.queues_[0].poll_mode_ == QueuePollMode::INDIRECT);
  CHECK(rx.queues_[0].common_.split_boundary_ == 0);
  const TxConfig& tx = socket.ifs_[1].tx_;
  CHECK_FALSE(tx.accurate_send_);
  CHECK(tx.queues_[0].pacing_mbps_ == 0);
  CHECK(tx.queues_[0].common_.offloads_.empty());
  CHECK(require_clean(ROCE).ifs_[1].roce_.transport_mode_ == "RC");
  CHECK(require_clean(FLEX).ifs_[0].rx_.flows_[1].match_.flex_item_match_.mask_ == UINT32_MAX);
  const NetworkConfig raw = require_clean(RAW);
  CHECK(raw.ifs_[1].tx_.flows_[0].match_ == FlowMatch{});
  const TunnelConfig& tunnel = raw.ifs_[1].tx_.flows_[4].action_.tunnel_;
  CHECK(tunnel.outer_ipv4_ttl_ == 64);
  CHECK(tunnel.outer_ipv4_tos_ == 0);
  const NetworkConfig push = with(FLEX, "vlan_id: 3", "vlan_id: 4");
  CHECK(push.ifs_[0].tx_.flows_[0].action_.vlan_ == [] {
    VlanActionConfig tag;
    tag.vlan_id_ = 4;
    return tag;
  }());
  CHECK(require_clean(REORDER).ifs_[0].rx_.reorder_configs_[1].payload_byte_offset_ == 0);
}

TEST_CASE("the last value is read, the next one refused", "[config][documented]") {
  with(RAW, "tx_meta_buffers: 512", "tx_meta_buffers: 1048576");
  refuses(RAW, "tx_meta_buffers: 512", "tx_meta_buffers: 1048577", "tx_meta_buffers", "1048576");
  with(RAW, "rx_meta_buffers: 128", "rx_meta_buffers: 1");
  refuses(RAW, "rx_meta_buffers: 128", "rx_meta_buffers: -1", "rx_meta_buffers", "from 1");
  with(RAW, "affinity: 1", "affinity: 1023");
  refuses(RAW, "affinity: 1", "affinity: 1024", "memory_regions[0].affinity", "1023");
  with(RAW, "id: 0, cpu_core: 4", "id: 0, cpu_core: 8191");
  refuses(RAW, "id: 0, cpu_core: 4", "id: 0, cpu_core: -1", QUEUE + ".cpu_core", "core number");
  refuses(RAW, "id: 0, cpu_core: 4", "id: 0, cpu_core: \"4,5\"", QUEUE + ".cpu_core",
          "core number");
  refuses(RAW, "batch_size: 1024,", "batch_size: 0,", QUEUE + ".batch_size", "from 1");
  with(RAW, "timeout_us: 100", "timeout_us: 4294967295");
  refuses(RAW, "timeout_us: 100", "timeout_us: 4294967296", QUEUE + ".timeout_us", "4294967295");
  with(RAW, "pacing_mbps: 1000", "pacing_mbps: 4294967295");
  refuses(RAW, "pacing_mbps: 1000", "pacing_mbps: 4294967296",
          "interfaces[1].tx.queues[0].pacing_mbps", "4294967295");
  with(RAW, "name: plain\n          id: 1", "name: plain\n          id: 8388607");
  refuses(RAW, "name: plain\n          id: 1", "name: plain\n          id: 8388608", FLOW + ".id",
          "8388607");
  with(RAW, "udp_src: 1000", "udp_src: 65535");
  refuses(RAW, "udp_src: 1000", "udp_src: 65536", FLOW + ".match.udp_src", "not a port");
  refuses(ECPRI, "msg_type: 5", "msg_type: 300", "interfaces[0].rx.flows[2].match.ecpri.msg_type",
          "255");
  refuses(RAW, "debug: true", "debug: 1", "debug", "true or false");
  refuses(RAW, "type: queue, id: 0}", "type: queue, id: 01}", FLOW + ".action.id", "01");
}

TEST_CASE("the schema has fewer limits than it might", "[config][documented]") {
  CHECK(require_clean(with_clients(5)).ifs_.size() == 7);
  const NetworkConfig tcp =
      require_clean(replaced(LEGACY, "local_addr: \"tcp://127.0.0.1:6001\"",
                             "local_addr: \"tcp://127.0.0.1:6001\", max_payload_size: 1048576"));
  CHECK(tcp.ifs_[0].socket_.max_payload_size_ == 1048576);
  const NetworkConfig ipv6 = require_clean(replaced(
      replaced(replaced(SOCKET, "\"udp://127.0.0.1:5001\", max", "\"udp://[::1]:5001\", max"),
               "\"udp://127.0.0.1:5002\"", "\"udp://[::1]:5002\""),
      "remote_addr: \"udp://127.0.0.1:5001\"", "remote_addr: \"udp://[::1]:5001\""));
  CHECK(ipv6.ifs_[0].socket_.local_ip_ == "::1");
  refuses(SOCKET, "\"udp://127.0.0.1:5001\", max", "\"udp://localhost:5001\", max",
          "interfaces[0].socket_config.local_addr", "not a numeric IPv4 address");
  const NetworkConfig actions =
      with(RAW, "actions: [{type: vlan_pop}, {type: queue, id: 1}]",
           "actions: [{type: vlan_pop}, {type: vlan_pop}, {type: queue, id: 1}]");
  CHECK(actions.ifs_[0].rx_.flows_[2].actions_.size() == 3);
  const NetworkConfig reorder =
      require_clean(replaced(replaced(REORDER, "{name: a, id: 1,", "{name: a, id: 70000,"),
                             "flow_ids: [1]", "flow_ids: [70000]"));
  CHECK(reorder.ifs_[0].rx_.reorder_configs_[0].flow_ids_ == std::vector<FlowId>{70000});
  const NetworkConfig decap = require_clean(RAW);
  CHECK(decap.ifs_[0].rx_.flows_[4].actions_[0].tunnel_.outer_ipv4_src_.empty());
}

TEST_CASE("mistakes that were taken for something else are named", "[config][documented]") {
  refuses(RAW, "kind: device", "kind: pinned", "memory_regions[1].kind", "'host_pinned'");
  refuses(RAW, "num_bufs: 20000\n      buf_size: 128", "num_bufs: 0\n      buf_size: 128",
          "memory_regions[0].num_bufs", "from 1");
  refuses(RAW, "[local, rdma_read]", "[local, remote]", "memory_regions[0].access[1]",
          "'rdma_read'");
  refuses(RAW, "{name: whole, id: 1, cpu_core", "{name: whole, id: 0, cpu_core",
          "interfaces[0].rx.queues[1].id", "also the id of");
  refuses(RAW, "log_level: info", "log_level: loud", "log_level", "'warn'");
  refuses(RAW, "flow_isolation: true", "flow_isolation: isolated",
          "interfaces[0].rx.flow_isolation", "true or false");
  refuses(RAW, "offloads: [tx_eth_src]", "offloads: [tx_ip_src]",
          "interfaces[1].tx.queues[0].offloads[0]", "'tx_eth_src'");
  refuses(RAW, "owned: false", "owned: false\n      alignment: 64", "memory_regions[0].alignment",
          "unknown key");
  refuses(RAW, "{type: gre, gre_protocol: 0x6558}}, {type: queue, id: 1}]",
          "{type: gre, vni: 3}}, {type: queue, id: 1}]",
          "interfaces[0].rx.flows[4].actions[0].tunnel.vni", "unknown key");
}
