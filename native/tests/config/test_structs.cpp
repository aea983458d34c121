// Structs built in code, and their conversion to and from YAML.
#include "documents.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

/// A loopback configuration built in code.
NetworkConfig built() {
  NetworkConfig config;
  config.common_.loopback_ = LoopbackType::LOOPBACK_TYPE_SW;
  config.mrs_["buffers"].num_bufs_ = 4096;
  config.mrs_["buffers"].buf_size_ = 2048;
  InterfaceConfig port;
  port.name_ = "port";
  port.address_ = "loopback";
  RxQueueConfig in;
  in.common_.name_ = "in";
  in.common_.cpu_core_ = "1";
  in.common_.batch_size_ = 256;
  in.common_.mrs_ = {"buffers"};
  port.rx_.queues_ = {in};
  FlowConfig flow;
  flow.name_ = "flow";
  flow.id_ = 1;
  flow.match_.udp_dst_ = {5000, 5010};
  flow.action_.id_ = 0;
  port.rx_.flows_ = {flow};
  config.ifs_ = {port, port};
  config.ifs_[1].name_ = "other";
  config.ifs_[1].rx_.flows_.clear();
  return config;
}

/// Requires one error, at `path`, without a line.
void refuses(NetworkConfig config, const std::string& path) {
  const NetworkConfig before = config;
  const ConfigReport report = validate_config(config);
  INFO(path << "\n" << report.text());
  CHECK_FALSE(report.ok());
  REQUIRE(report.problems_.size() == 1);
  CHECK(report.problems_[0].path_ == path);
  CHECK(report.problems_[0].line_ == 0);
  CHECK(report.problems_[0].column_ == 0);
  CHECK(report.problems_[0].file_ == "<config>");
  CHECK(config == before);
}

}  // namespace

TEST_CASE("an interface has at most 65534 flows", "[config][structs]") {
  NetworkConfig config = built();
  std::vector<FlowConfig>& flows = config.ifs_[0].rx_.flows_;
  const FlowConfig flow = flows.front();
  for (FlowId id = 1; id < 65535; ++id) {
    FlowConfig& next = flows.emplace_back(flow);
    next.id_ = id + 1;
    next.name_ = std::to_string(id);
    const auto port = static_cast<std::uint16_t>(id);
    next.match_.udp_dst_ = {port, port};
    next.match_.udp_src_ = {1, 1};
  }
  refuses(config, "interfaces[0].rx.flows");
}

TEST_CASE("a struct built in code is validated and completed", "[config][structs]") {
  NetworkConfig config = built();
  const ConfigReport report = validate_config(config);
  INFO(report.text());
  REQUIRE(report.problems_.empty());
  CHECK(config.common_.engine_type == EngineType::DPDK);
  CHECK(config.ifs_[1].port_id_ == 1);
  REQUIRE(config.ifs_[0].rx_.flows_[0].actions_.size() == 1);
  CHECK(config.ifs_[0].rx_.flows_[0].actions_[0] == config.ifs_[0].rx_.flows_[0].action_);

  NetworkConfig again = config;
  CHECK(validate_config(again).problems_.empty());
  CHECK(again == config);
}

TEST_CASE("a struct meets the rules of a file", "[config][structs]") {
  const auto with = [](auto&& change) {
    NetworkConfig config = built();
    change(config);
    return config;
  };
  refuses(with([](auto& c) { c.common_.version = 2; }), "version");
  refuses(with([](auto& c) { c.common_.master_core_ = -1; }), "master_core");
  refuses(with([](auto& c) { c.common_.stream_type = static_cast<StreamType>(7); }), "stream_type");
  refuses(with([](auto& c) { c.common_.engine = EngineType::RDMA; }), "engine");
  refuses(with([](auto& c) { c.common_.engine_type = EngineType::RDMA; }), "engine");
  refuses(with([](auto& c) { c.log_level_ = static_cast<LogLevel::Level>(-3); }), "log_level");
  refuses(with([](auto& c) { c.rx_meta_buffers_ = 0; }), "rx_meta_buffers");
  refuses(with([](auto& c) { c.mrs_.at("buffers").num_bufs_ = UINT64_MAX; }),
          "memory_regions['buffers'].num_bufs");
  refuses(with([](auto& c) { c.mrs_.at("buffers").access_ = 0; }),
          "memory_regions['buffers'].access");
  refuses(with([](auto& c) { c.mrs_.at("buffers").access_ = 8; }),
          "memory_regions['buffers'].access[0]");
  refuses(with([](auto& c) { c.mrs_.at("buffers").name_ = "other"; }), "memory_regions");
  refuses(with([](auto& c) { c.mrs_.at("buffers").kind_ = static_cast<MemoryKind>(9); }),
          "memory_regions['buffers'].kind");
  refuses(with([](auto& c) { c.mrs_.at("buffers").kind_ = MemoryKind::INVALID; }),
          "memory_regions['buffers'].kind");
  refuses(with([](auto& c) {
            c.common_.engine = EngineType::DPDK;
            c.common_.engine_type = EngineType::SOCKET;
          }),
          "engine");
  refuses(
      with([](auto& c) { c.ifs_[0].rx_.flows_[0].match_.type_ = static_cast<FlowMatchType>(99); }),
      "interfaces[0].rx.flows[0].match.type");
  refuses(with([](auto& c) { c.ifs_[1].name_ = "port"; }), "interfaces[1].name");
  refuses(with([](auto& c) { c.ifs_[0].address_ = "<address>"; }), "interfaces[0].address");
  refuses(with([](auto& c) { c.ifs_[0].rx_.queues_[0].common_.batch_size_ = -5; }),
          "interfaces[0].rx.queues[0].batch_size");
  refuses(with([](auto& c) { c.ifs_[0].rx_.queues_[0].common_.cpu_core_ = "zz"; }),
          "interfaces[0].rx.queues[0].cpu_core");
  refuses(with([](auto& c) { c.ifs_[0].rx_.queues_[0].common_.cpu_core_ = ""; }),
          "interfaces[0].rx.queues[0].cpu_core");
  refuses(with([](auto& c) { c.ifs_[0].rx_.queues_[0].common_.mrs_ = {"nowhere"}; }),
          "interfaces[0].rx.queues[0].memory_regions[0]");
  refuses(with([](auto& c) { c.ifs_[0].rx_.queues_[0].common_.mrs_.clear(); }),
          "interfaces[0].rx.queues[0].memory_regions");
  refuses(with([](auto& c) { c.ifs_[0].rx_.queues_[0].common_.offloads_ = {"tx_eth_src"}; }),
          "interfaces[0].rx.queues[0].offloads");
  refuses(with([](auto& c) {
            c.ifs_[0].rx_.queues_[0].poll_mode_ = QueuePollMode::DIRECT;
            c.ifs_[0].rx_.queues_[0].common_.batch_size_ = 0;
          }),
          "interfaces[0].rx.queues[0].cpu_core");
  refuses(with([](auto& c) { c.ifs_[0].rx_.flows_[0].action_.id_ = 4; }),
          "interfaces[0].rx.flows[0].action.id");
  refuses(with([](auto& c) { c.ifs_[0].rx_.flows_[0].action_.type_ = FlowType::VLAN_POP; }),
          "interfaces[0].rx.flows[0].actions[0].type");
  refuses(with([](auto& c) {
            c.ifs_[0].rx_.flows_[0].match_ = FlowMatch{};
            c.ifs_[0].rx_.flows_[0].match_.type_ = FlowMatchType::FLEX_ITEM;
          }),
          "interfaces[0].rx.flows[0].match.flex_item_id");
  refuses(with([](auto& c) { c.ifs_[0].rx_.flows_[0].match_.ecpri_match_.match_msg_type_ = true; }),
          "interfaces[0].rx.flows[0].match.udp_dst");
  refuses(with([](auto& c) {
            FlowConfig flow;
            flow.name_ = "t";
            flow.actions_.emplace_back();
            c.ifs_[0].tx_.flows_.push_back(flow);
            c.ifs_[0].tx_.queues_.emplace_back().common_ = c.ifs_[0].rx_.queues_[0].common_;
          }),
          "interfaces[0].tx.flows[0].action.type");
  refuses(with([](auto& c) { c.ifs_[0].name_ = "caf\xE9"; }), "interfaces[0].name");
  refuses(with([](auto& c) { c.ifs_[0].rx_.flows_[0].id_ = MAX_STATIC_FLOW_ID + 1; }),
          "interfaces[0].rx.flows[0].id");
  refuses(with([](auto& c) { c.ifs_[0].rx_.flows_[0].match_.udp_dst_ = {9, 3}; }),
          "interfaces[0].rx.flows[0].match.udp_dst");
  refuses(with([](auto& c) {
            c.ifs_[0].rx_.queues_.clear();
            c.ifs_[0].rx_.flows_.clear();
            c.ifs_[0].rx_.flow_isolation_ = true;
          }),
          "interfaces[0].rx.queues");
  refuses(with([](auto& c) { c.ifs_[0].socket_.mode_ = SocketMode::SERVER; }),
          "interfaces[0].socket_config");
  refuses(with([](auto& c) { c.ifs_.clear(); }), "interfaces");
}

TEST_CASE("names of columns in structs meet the rules of a file", "[config][structs]") {
  const NetworkConfig frames = require_clean(FRAMES);
  const std::string path = "interfaces[0].rx.reorder_configs[1].columns";
  const auto with = [&](const std::string& name) {
    NetworkConfig config = frames;
    std::vector<ReorderColumnConfig>& columns = config.ifs_[0].rx_.reorder_configs_[1].columns_;
    columns.push_back({name, columns[0].field_});
    return config;
  };
  NetworkConfig good = with("pulse_id");
  CHECK(validate_config(good).ok());
  CHECK(good.ifs_[0].rx_.reorder_configs_[1].columns_.size() == 2);
  refuses(with("name"), path + ".name");
  refuses(with("NAME"), path + ".NAME");
  for (const char* name : {"", "batch", "a b", "a\n", "\xff"}) refuses(with(name), path);
}

TEST_CASE("an engine set in code is kept, an inferred one is inferred anew", "[config][structs]") {
  NetworkConfig config = built();
  config.common_.loopback_ = LoopbackType::DISABLED;
  config.ifs_.pop_back();
  config.ifs_[0].address_ = "0000:01:00.0";
  config.common_.engine_type = EngineType::IBVERBS;
  CHECK(validate_config(config).ok());
  CHECK(config.common_.engine_type == EngineType::IBVERBS);
  CHECK(config.common_.engine == EngineType::IBVERBS);

  config.common_.engine = EngineType::DEFAULT;
  config.common_.engine_type = EngineType::DEFAULT;
  CHECK(validate_config(config).ok());
  CHECK(config.common_.engine_type == EngineType::DPDK);
  config.ifs_[0].address_ = "eth0";
  CHECK(validate_config(config).ok());
  CHECK(config.common_.engine_type == EngineType::PACKET);
  CHECK(config.common_.engine == EngineType::DEFAULT);
}

TEST_CASE("adjusted values are read back from the struct", "[config][structs]") {
  NetworkConfig config = built();
  config.mrs_.at("buffers").num_bufs_ = 100;
  const ConfigReport report = validate_config(config);
  CHECK(report.ok());
  REQUIRE(report.problems_.size() == 1);
  CHECK(report.problems_[0].path_ == "memory_regions['buffers'].num_bufs");
  CHECK(config.mrs_.at("buffers").num_bufs_ == 768);
}

TEST_CASE("queues of an action are told apart from RSS", "[config][structs]") {
  NetworkConfig config = built();
  config.ifs_[0].rx_.flows_[0].action_.ids_ = {0};
  config.ifs_[0].rx_.flows_[0].action_.id_ = 9;
  REQUIRE(validate_config(config).ok());
  CHECK(config.ifs_[0].rx_.flows_[0].action_.id_ == 0);
  CHECK(config.ifs_[0].rx_.flows_[0].action_.ids_.empty());
  CHECK(require_clean(RAW).ifs_[0].rx_.flows_[1].action_.ids_ == std::vector<std::uint16_t>{0, 1});
}

TEST_CASE("a configuration written as YAML loads as the same configuration", "[config][structs]") {
  for (const char* text : {RAW, REORDER, FLEX, ECPRI, SOCKET, ROCE, LEGACY}) {
    const NetworkConfig config = require_clean(text);
    const std::string yaml = config_to_yaml(config);
    INFO(yaml);
    CHECK(require_clean(yaml) == config);
    NetworkConfig copy = config;
    CHECK(validate_config(copy).problems_.empty());
    CHECK(copy == config);
  }
}

TEST_CASE("names come back as they were, whatever they look like", "[config][structs]") {
  for (const std::string name : {"null", "~", "true", "12", "a: b", "- x", "#", "'", "\"",
                                 " padded ", "ключ", "a\\nb", "{}", "*a", "!t", "0x10"}) {
    NetworkConfig config = built();
    config.ifs_[0].name_ = name;
    auto buffers = config.mrs_.extract("buffers");
    buffers.key() = name;
    config.mrs_.insert(std::move(buffers));
    for (InterfaceConfig& port : config.ifs_) port.rx_.queues_[0].common_.mrs_ = {name};
    INFO(name);
    REQUIRE(validate_config(config).ok());
    CHECK(require_clean(config_to_yaml(config)) == config);
  }
}

TEST_CASE("words stay words for readers of YAML 1.1", "[config][structs]") {
  NetworkConfig config = require_clean(SOCKET);
  config.log_level_ = LogLevel::OFF;
  config.ifs_[0].address_ = "0005:03:00.0";
  const std::string yaml = config_to_yaml(config);
  CHECK_THAT(yaml, Catch::Contains("log_level: \"off\"") && Catch::Contains("\"0005:03:00.0\""));
  CHECK(require_clean(yaml) == config);
}

TEST_CASE("every default is written out", "[config][structs]") {
  const std::string yaml = config_to_yaml(require_clean(SOCKET));
  for (const char* line :
       {"log_level: warn", "debug: false", "loopback: \"\"", "tx_meta_buffers: 256", "owned: true",
        "retry_connect_s: 1", "flow_isolation: false", "poll_mode: indirect", "timeout_us: 0",
        "pacing_mbps: 0", "split_boundary: 0"}) {
    CHECK_THAT(yaml, Catch::Contains(line));
  }
  const std::string small = replaced(REORDER, "num_bufs: 16384", "num_bufs: 10");
  const Loaded raised = load(replaced(small, "address: eth0", "address: 0000:05:00.0"));
  CHECK_THAT(config_to_yaml(raised.config), Catch::Contains("num_bufs: 24576"));
}

namespace {

NetworkConfig sockets() {
  NetworkConfig config = built();
  config.common_.stream_type = StreamType::SOCKET;
  config.common_.loopback_ = LoopbackType::DISABLED;
  config.ifs_.pop_back();
  config.ifs_[0].address_ = "127.0.0.1";
  config.ifs_[0].rx_.flows_.clear();
  config.ifs_[0].socket_.mode_ = SocketMode::SERVER;
  config.ifs_[0].socket_.local_ip_ = "127.0.0.1";
  config.ifs_[0].socket_.local_port_ = 5000;
  return config;
}

}  // namespace

TEST_CASE("endpoints in parts have the protocol of the struct", "[config][structs]") {
  for (const auto& [protocol, address] : {std::pair(SocketProtocol::UDP, "udp://127.0.0.1:5000"),
                                          std::pair(SocketProtocol::TCP, "tcp://127.0.0.1:5000")}) {
    NetworkConfig config = sockets();
    config.common_.protocol = protocol;
    const ConfigReport report = validate_config(config);
    INFO(report.text());
    REQUIRE(report.problems_.empty());
    CHECK(config.common_.protocol == protocol);
    CHECK(config.ifs_[0].socket_.local_addr_ == address);
    CHECK(config.ifs_[0].socket_.local_port_ == 5000);
    CHECK(validate_config(config).problems_.empty());
  }
}

TEST_CASE("a struct that contradicts itself is refused with both values", "[config][structs]") {
  const auto refusal = [](auto&& change) {
    NetworkConfig config = sockets();
    config.ifs_[0].socket_.local_addr_ = "udp://127.0.0.1:5000";
    change(config);
    return validate_config(config).text();
  };
  CHECK(refusal([](auto&) {}).empty());
  CHECK(refusal([](auto& c) { c.common_.protocol = SocketProtocol::TCP; }) ==
        "<config>: error: protocol: found 'tcp', while interfaces[0].socket_config.local_addr has "
        "scheme 'udp'; accepts one transport in a configuration\n");
  CHECK(refusal([](auto& c) { c.ifs_[0].socket_.local_port_ = 5001; }) ==
        "<config>: error: interfaces[0].socket_config.local_port: found 5001 with local_addr: "
        "udp://127.0.0.1:5000, which contains address and port; remove it\n");
  CHECK(refusal([](auto& c) { c.common_.engine_type = EngineType::DPDK; }) ==
        "<config>: error: engine: found 'dpdk' with stream_type: socket and udp:// endpoints; "
        "accepts 'socket'\n");
  CHECK(refusal([](auto& c) {
          c.common_.engine = EngineType::SOCKET;
          c.common_.engine_type = EngineType::DPDK;
        }) ==
        "<config>: error: engine: found 'socket' with engine_type 'dpdk'; accepts the same engine "
        "in both, or EngineType::DEFAULT in one\n");
  CHECK(refusal([](auto& c) { c.ifs_[0].socket_.mode_ = static_cast<SocketMode>(7); }) ==
        "<config>: error: interfaces[0].socket_config.mode: found '7', unknown word; accepts "
        "'client' or 'server'\n");
  CHECK(refusal([](auto& c) { c.ifs_[0].socket_.mode_ = SocketMode::INVALID; }) ==
        "<config>: error: interfaces[0].socket_config.mode: required, but not given; accepts "
        "'client' or 'server'\n");
}
