// Documented spellings with their meanings, and mistakes that only the whole configuration shows.
#include <yaml-cpp/yaml.h>

#include <functional>

#include "daqiri/daqiri.h"
#include "documents.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

struct Spelling {
  const char* document;
  std::string_view what;
  std::string_view by;
  /// Returns the value as text.
  std::function<std::string(const NetworkConfig&)> value;
  std::string expected;
};

void reads(const Spelling& each) {
  INFO(each.what << " -> " << each.by);
  const NetworkConfig config = require_clean(replaced(each.document, each.what, each.by));
  CHECK(each.value(config) == each.expected);
  CHECK(require_clean(config_to_yaml(config)) == config);
}

std::string level(const NetworkConfig& c) { return log_level_to_string(c.log_level_); }
std::string engine(const NetworkConfig& c) { return engine_type_to_string(c.common_.engine_type); }
const RxConfig& rx(const NetworkConfig& c) { return c.ifs_[0].rx_; }
const FlowAction& pushed(const NetworkConfig& c) { return c.ifs_[1].tx_.flows_[0].action_; }
std::string core(const NetworkConfig& c) { return rx(c).queues_[0].common_.cpu_core_; }
std::string ports(const NetworkConfig& c) {
  const PortRange& range = rx(c).flows_[0].match_.udp_dst_;
  return std::to_string(range.lo) + "-" + std::to_string(range.hi);
}
std::string queue(const NetworkConfig& c) {
  const FlowAction& action = rx(c).flows_[0].action_;
  return std::to_string(action.id_) + (action.ids_.empty() ? "" : " of several");
}
std::string tunnel(const NetworkConfig& c) {
  return tunnel_type_to_string(c.ifs_[1].tx_.flows_[1].actions_[1].tunnel_.type_);
}
std::string types(const NetworkConfig& c) {
  const ReorderDataTypesConfig& types = rx(c).reorder_configs_[0].data_types_;
  return reorder_data_type_to_string(types.input_type_) + " " +
         reorder_data_type_to_string(types.output_type_) + " " +
         reorder_endianness_to_string(types.endianness_);
}

const char* const VLAN_TAG = "{type: vlan_push, vlan_id: 100, pcp: 3, dei: 1, ethertype: 0x88a8}";

}  // namespace

TEST_CASE("documented spellings have their meaning", "[config][spellings]") {
  for (const char* word : {"info", "INFO", "Info"}) {
    const std::string spelling = std::string("log_level: ") + word;
    reads({RAW, "log_level: info", spelling, level, "info"});
  }
  reads({RAW, "engine: dpdk", "engine: default", engine, "dpdk"});
  reads({RAW, "engine: dpdk", "engine: ibverbs", engine, "ibverbs"});
  reads({SOCKET, "stream_type: socket", "stream_type: socket\nengine: default", engine, "socket"});
  reads({ROCE, "stream_type: socket", "stream_type: socket\nengine: socket", engine, "rdma"});
  reads({ROCE, "stream_type: socket", "stream_type: socket\nengine: ibverbs", engine, "rdma"});
  reads({ROCE, "transport_mode: UC", "transport_mode: UD",
         [](const auto& c) { return c.ifs_[0].roce_.transport_mode_; }, "UD"});
  for (const char* text : {"4", "'4'", "\"4\""}) {
    const std::string spelling = std::string("id: 0, cpu_core: ") + text;
    reads({RAW, "id: 0, cpu_core: 4", spelling, core, "4"});
  }
  reads({RAW, "id: 0, cpu_core: 4", "id: 0, cpu_core: any", core, "any"});
  reads({RAW, "udp_dst: 2000-2010", "udp_dst: 2000", ports, "2000-2000"});
  reads({RAW, "udp_dst: 2000-2010", "udp_dst: '2000-2010'", ports, "2000-2010"});
  reads({RAW, "udp_dst: 2000-2010", "udp_dst: 0", ports, "0-0"});
  reads({RAW, "action: {type: queue, id: 0}", "action: {type: queue, ids: [1]}", queue, "1"});
  reads({RAW, "action: {type: queue, id: 0}", "action: {type: queue, ids: [0, 1]}", queue,
         "0 of several"});
  reads({RAW, "action: {type: queue, id: 0}", "actions: [{type: queue, id: 1}]", queue, "1"});
}

TEST_CASE("a tag's keys stand in a map of their own, too", "[config][spellings]") {
  const auto tag = [](const auto& c) { return std::to_string(pushed(c).vlan_.vlan_id_); };
  reads({RAW, VLAN_TAG, VLAN_TAG, tag, "100"});
  reads({RAW, VLAN_TAG, "{type: vlan_push, vlan: {vlan_id: 7, pcp: 3, dei: 1, ethertype: 0x88a8}}",
         tag, "7"});
  const std::string flow = "interfaces[1].tx.flows[0].action";
  require_error(replaced(RAW, VLAN_TAG, "{type: vlan_push, vlan_id: 1, vlan: {vlan_id: 7}}"),
                flow + ".vlan_id", "found together with vlan");
  require_error(replaced(RAW, VLAN_TAG, "{type: vlan_push, vlan: {pcp: 3}}"),
                flow + ".vlan.vlan_id", "required");
}

TEST_CASE("the type of a tunnel stands beside it, too", "[config][spellings]") {
  const char* const INSIDE = "tunnel: {type: vxlan, vni: 9,";
  reads({RAW, INSIDE, "tunnel_type: vxlan\n            tunnel: {vni: 9,", tunnel, "vxlan"});
  reads({RAW, INSIDE, "tunnel_type: vxlan\n            tunnel: {type: vxlan, vni: 9,", tunnel,
         "vxlan"});
  require_error(
      replaced(RAW, INSIDE, "tunnel_type: gre\n            tunnel: {type: vxlan, vni: 9,"),
      "interfaces[1].tx.flows[1].actions[1].tunnel.type", "while tunnel_type is 'gre'");
  require_error(replaced(RAW, INSIDE, "tunnel_type: ipip\n            tunnel: {vni: 9,"),
                "interfaces[1].tx.flows[1].actions[1].tunnel_type", "'vxlan'");
}

TEST_CASE("types of elements have shorter names, too", "[config][spellings]") {
  reads({REORDER, "input_type: int16", "input: int8", types, "int8 fp32 network"});
  reads({REORDER, "output_type: fp32", "output: fp32", types, "int16 fp32 network"});
  reads({REORDER, "endianness: network", "input_endianness: host", types, "int16 fp32 host"});
  const std::string place = "interfaces[0].rx.reorder_configs[0].data_types";
  require_error(replaced(REORDER, "input_type: int16", "input: int9"), place + ".input",
                "accepts 'int4'");
  require_error(replaced(REORDER, "input_type: int16", "input: int16, input_type: int16"),
                place + ".input", "means the same");
}

TEST_CASE("no time between attempts is one second", "[config][spellings]") {
  for (const char* seconds : {"0", "-1", "-2147483648"}) {
    const Loaded loaded = require_warning(
        replaced(ROCE, "retry_connect_s: 2", "retry_connect_s: " + std::string(seconds)),
        "interfaces[0].socket_config.retry_connect_s", std::string("from ") + seconds + " to 1");
    CHECK(loaded.config.ifs_[0].socket_.retry_connect_s_ == 1);
  }
}

TEST_CASE("a number is no address unless it is quoted", "[config][spellings]") {
  for (const char* number : {"180.0", "180", "1_0.5", "1e5"}) {
    require_error(replaced(SOCKET, "address: 127.0.0.1", "address: " + std::string(number)),
                  "interfaces[0].address", "put the text in quotes");
  }
  CHECK(require_clean(replaced(FLEX, "address: eth0", "address: '180.0'")).ifs_[0].address_ ==
        "180.0");
}

TEST_CASE("keys that went say what has replaced them", "[config][spellings]") {
  require_error(replaced(SOCKET, "stream_type", "manager: dpdk\nstream_type"), "manager",
                "'engine' selects");
  require_error(replaced(SOCKET, "stream_type", "protocol: udp\nstream_type"), "protocol",
                "udp://ip:port");
  require_error(replaced(SOCKET, "socket_config: {mode: client",
                         "rdma_config: {mode: client}\n  socket_config: {mode: client"),
                "interfaces[1].rdma_config", "socket_config has the side");
}

TEST_CASE("what no engine could do is found before the start", "[config][spellings]") {
  // Packets of any engine can be copied to a GPU.
  require_clean(replaced(SOCKET, "kind: host", "kind: device"));
  require_clean(replaced(LEGACY, "kind: host", "kind: device"));
  require_clean(replaced(ROCE, "kind: host_pinned", "kind: device"));
  require_error(replaced(RAW, VLAN_TAG, "{type: vlan_push, vlan_id: 1, ethertype: 0}"),
                "interfaces[1].tx.flows[0].action.ethertype", "from 1 to 65535");
  require_error(replaced(RAW, "gre_protocol: 0x6558", "gre_protocol: 0"),
                "interfaces[0].rx.flows[4].actions[0].tunnel.gre_protocol", "from 1 to 65535");
}

TEST_CASE("memory that nothing uses is told of", "[config][spellings]") {
  const std::string unused =
      replaced(SOCKET, "memory_regions:\n",
               "memory_regions:\n- {name: spare, kind: host, num_bufs: 16, buf_size: 2048}\n");
  require_warning(unused, "memory_regions[0]", "used by no queue and no reorder config");
  // No second problem is reported where the region may be used or a name may be misspelled.
  require_error(replaced(unused, "name: in, id: 0", "name: in, id: x"),
                "interfaces[0].rx.queues[0].id");
  CHECK(warnings(load(replaced(unused, "name: in, id: 0", "name: in, id: x")).report) == 0);
  require_clean(ROCE);
  require_clean(REORDER);
}

TEST_CASE("the engine of a configuration is written, also when it was inferred",
          "[config][spellings]") {
  CHECK_THAT(config_to_yaml(require_clean(SOCKET)), Catch::Contains("engine: socket"));
  CHECK_THAT(config_to_yaml(require_clean(ROCE)), Catch::Contains("engine: ibverbs"));
  CHECK_THAT(config_to_yaml(require_clean(REORDER)), Catch::Contains("engine: packet"));
  CHECK(get_engine_type(require_clean(ROCE)) == EngineType::RDMA);
  NetworkConfig config;
  CHECK(get_engine_type(config) == EngineType::UNKNOWN);
  const EnabledDirections enabled = get_enabled_directions(require_clean(REORDER));
  CHECK(enabled.rx);
  CHECK_FALSE(enabled.tx);
}

TEST_CASE("a configuration is a node of yaml-cpp, and back", "[config][spellings]") {
  const NetworkConfig config = require_clean(SOCKET);
  const YAML::Node node(config);
  CHECK(node["daqiri"]["cfg"]["version"].as<int>() == 1);
  CHECK(node.as<NetworkConfig>() == config);
  CHECK_THROWS_AS(YAML::Load("version: 2").as<NetworkConfig>(), YAML::BadConversion);
}

TEST_CASE("words of the configuration are functions", "[config][spellings]") {
  CHECK(stream_type_to_string(StreamType::SOCKET) == "socket");
  CHECK(stream_type_from_string("raw") == StreamType::RAW);
  CHECK(stream_type_from_string("stream") == StreamType::INVALID);
  CHECK(engine_type_to_string(EngineType::IBVERBS) == "ibverbs");
  CHECK(engine_type_to_string(EngineType::UNKNOWN) == "unknown");
  CHECK(engine_type_from_string("rdma") == EngineType::RDMA);
  CHECK(engine_type_from_string("gpunetio") == EngineType::UNKNOWN);
  CHECK(socket_protocol_from_string("rdma") == SocketProtocol::ROCE);
  CHECK(socket_protocol_to_string(SocketProtocol::ROCE) == "roce");
  CHECK(memory_kind_from_string("host_pinned") == MemoryKind::HOST_PINNED);
  CHECK(memory_kind_to_string(MemoryKind::INVALID) == "invalid");
  CHECK(reorder_data_type_to_string(ReorderDataType::BF16) == "bf16");
  CHECK(reorder_data_type_from_string("int32") == ReorderDataType::INT32);
  CHECK(reorder_endianness_from_string("network") == ReorderEndianness::NETWORK);
  CHECK(flow_type_to_string(FlowType::TUNNEL_DECAP) == "tunnel_decap");
  CHECK(flow_type_from_string("vlan_pop") == FlowType::VLAN_POP);
  CHECK(tunnel_type_from_string("") == TunnelType::NONE);
  FlowRuleConfig flow;
  flow.action_.id_ = 3;
  REQUIRE(flow_actions(flow).size() == 1);
  CHECK(flow_actions(flow)[0].id_ == 3);
}
