// The documented types: numbers of enumerators, byte orders, conversions, and a configuration built
// in code.
#include <arpa/inet.h>

#include <type_traits>

#include "daqiri/types.h"
#include "documents.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

template <class Enum>
constexpr int number(Enum value) {
  return static_cast<int>(value);
}

static_assert(MEM_ACCESS_LOCAL == 1 && MEM_ACCESS_RDMA_WRITE == 2 && MEM_ACCESS_RDMA_READ == 4);
static_assert(number(EngineType::UNKNOWN) == -1 && number(EngineType::DEFAULT) == 0 &&
              number(EngineType::DPDK) == 1 && number(EngineType::SOCKET) == 2 &&
              number(EngineType::RDMA) == 3 && number(EngineType::IBVERBS) == 4);
static_assert(number(TunnelType::NONE) == 0 && number(TunnelType::VXLAN) == 1 &&
              number(TunnelType::GRE) == 2 && number(TunnelType::NVGRE) == 3);
static_assert(number(FlowType::QUEUE) == 0 && number(FlowType::VLAN_PUSH) == 1 &&
              number(FlowType::VLAN_POP) == 2 && number(FlowType::TUNNEL_ENCAP) == 3 &&
              number(FlowType::TUNNEL_DECAP) == 4);
static_assert(number(MemoryKind::HOST) == 0 && number(MemoryKind::HOST_PINNED) == 1 &&
              number(MemoryKind::HUGE) == 2 && number(MemoryKind::DEVICE) == 3 &&
              number(MemoryKind::INVALID) == 4);
static_assert(number(StreamType::INVALID) == 2 && number(QueuePollMode::INVALID) == 2 &&
              number(SocketMode::INVALID) == 2 && number(SocketProtocol::INVALID) == 3);
static_assert(number(ReorderMethod::INVALID) == 0 && number(ReorderMethod::SEQ_BATCH_NUMBER) == 1 &&
              number(ReorderMethod::SEQ_PACKETS_PER_BATCH) == 2);
static_assert(number(ReorderDataType::SAME) == 0 && number(ReorderDataType::INT32) == 4 &&
              number(ReorderDataType::FP16) == 5 && number(ReorderDataType::FP64) == 8 &&
              number(ReorderDataType::INVALID) == 9);
static_assert(number(ReorderEndianness::HOST) == 0 && number(ReorderEndianness::INVALID) == 2);
static_assert(number(Direction::RX) == 0 && number(Direction::TX) == 1 &&
              number(Direction::TX_RX) == 2);
static_assert(number(BufferLocation::CPU) == 0 && number(BufferLocation::CPU_GPU_SPLIT) == 2);
static_assert(number(RDMACompletionType::RX) == 0 && number(RDMACompletionType::INVALID) == 2);
static_assert(number(RDMAMode::CLIENT) == 0 && number(RDMAMode::INVALID) == 2);
static_assert(number(RDMATransportMode::RC) == 0 && number(RDMATransportMode::UD) == 2 &&
              number(RDMATransportMode::INVALID) == 3);
static_assert(number(ErrorGlobalStats::OUT_OF_RX_BUFFERS) == 0 &&
              number(ErrorGlobalStats::SENTINEL) == 3);
static_assert(number(LogLevel::TRACE) == 0 && number(LogLevel::OFF) == 6);
static_assert(MAX_NUM_SEGS == 4 && MAX_INTERFACES == 4 && MAX_NUM_RX_QUEUES == 32 &&
              MAX_NUM_TX_QUEUES == 32 && DEFAULT_TX_META_BUFFERS == 256 &&
              DEFAULT_RX_META_BUFFERS == 256);

static_assert(std::is_same_v<decltype(FlowMatch::ipv4_src_), in_addr_t>);
static_assert(std::is_same_v<decltype(BurstHeaderParams::max_pkt), std::uint32_t>);
static_assert(std::is_same_v<decltype(FileWriteStatus::completed_packets), std::uint32_t>);
static_assert(std::is_same_v<decltype(S3WriteStatus::failed_objects), std::uint32_t>);
static_assert(std::is_same_v<decltype(ReorderBurstInfo::aggregate_len), std::uint32_t>);
static_assert(sizeof(BurstHeader) == ADV_NETWORK_HEADER_SIZE_BYTES);

}  // namespace

TEST_CASE("a flow takes a port, an address as text, and network byte order", "[config][types]") {
  FlowRuleConfig flow;
  flow.action_.type_ = FlowType::QUEUE;
  flow.match_.udp_dst_ = 5000;
  const std::uint16_t port = 6000;
  flow.match_.udp_src_ = port;
  CHECK(flow.match_.udp_dst_ == PortRange(5000, 5000));
  CHECK(flow.match_.udp_src_.contains(6000));
  flow.action_.tunnel_.type_ = TunnelType::VXLAN;
  flow.action_.tunnel_.outer_ipv4_src_ = "192.0.2.1";
  flow.match_.ipv4_dst_ = inet_addr("192.0.2.7");

  const NetworkConfig config =
      require_clean(replaced(RAW, "ipv4_src: 10.0.0.1", "ipv4_src: 192.0.2.7"));
  CHECK(config.ifs_[0].rx_.flows_[0].match_.ipv4_src_ == inet_addr("192.0.2.7"));
}

TEST_CASE("a configuration in code has the documented layout", "[config][types]") {
  NetworkConfig config;
  config.common_.stream_type = StreamType::RAW;
  config.common_.engine = EngineType::DPDK;
  config.common_.dir = Direction::TX_RX;
  config.common_.loopback_ = LoopbackType::DISABLED;
  config.log_level_ = LogLevel::WARN;
  config.tx_meta_buffers_ = DEFAULT_TX_META_BUFFERS;
  MemoryRegionConfig region;
  region.name_ = "data";
  region.kind_ = MemoryKind::HUGE;
  region.access_ = MEM_ACCESS_LOCAL | MEM_ACCESS_RDMA_READ;
  region.num_bufs_ = 16384;
  region.buf_size_ = 1064;
  config.mrs_.emplace(region.name_, region);
  InterfaceConfig interface;
  interface.name_ = "port";
  interface.address_ = "0000:05:00.0";
  RxQueueConfig queue;
  queue.common_.name_ = "q";
  queue.common_.cpu_core_ = "1";
  queue.common_.batch_size_ = 1024;
  queue.common_.mrs_ = {"data"};
  queue.timeout_us_ = 1000;
  queue.poll_mode_ = QueuePollMode::INDIRECT;
  interface.rx_.queues_.push_back(queue);
  FlowConfig flow;
  flow.name_ = "flow";
  flow.id_ = 1;
  flow.match_.udp_src_ = 4096;
  interface.rx_.flows_.push_back(flow);
  config.ifs_.push_back(interface);

  const ConfigReport report = validate_config(config);
  INFO(report.text());
  REQUIRE(report.problems_.empty());
  CHECK(config.common_.engine_type == EngineType::DPDK);
  CHECK(config.common_.dir == Direction::RX);
  CHECK_THAT(config_to_yaml(config), Catch::Contains("rdma_read"));
}

TEST_CASE("regions keep the order of the file", "[config][types]") {
  const NetworkConfig config = require_clean(RAW);
  const auto regions = memory_regions(config);
  REQUIRE(regions.size() == 3);
  CHECK(regions[0]->name_ == "headers");
  CHECK(regions[1]->name_ == "payloads");
  CHECK(regions[2]->name_ == "whole");
  CHECK(regions[2] == &config.mrs_.at("whole"));
}

TEST_CASE("an RDMA stream is known by its engine type", "[config][types]") {
  const NetworkConfig config = require_clean(ROCE);
  CHECK(config.common_.engine_type == EngineType::RDMA);
  CHECK(config.ifs_[0].rdma_.mode_ != RDMAMode::INVALID);
  CHECK(config.ifs_[0].rdma_.xmode_ != RDMATransportMode::INVALID);
}

TEST_CASE("what a program never set is asked for", "[config][types]") {
  NetworkConfig config = require_clean(SOCKET);
  config.ifs_[0].socket_.mode_ = SocketMode::INVALID;
  const ConfigReport report = validate_config(config);
  REQUIRE(report.problems_.size() == 1);
  CHECK(report.problems_[0].path_ == "interfaces[0].socket_config.mode");
  CHECK_THAT(report.problems_[0].message_, Catch::Contains("required, but not given"));
}

TEST_CASE("an address and its parts must agree", "[config][types]") {
  NetworkConfig config = require_clean(SOCKET);
  SocketConfig& socket = config.ifs_[0].socket_;
  REQUIRE(socket.local_port_ != 0);
  socket.local_port_ = 9999;
  CHECK_FALSE(validate_config(config).ok());
  socket.local_addr_.clear();
  // The transport then comes from the other interface.
  REQUIRE(validate_config(config).ok());
  CHECK_THAT(config.ifs_[0].socket_.local_addr_, Catch::EndsWith(":9999"));
}

TEST_CASE("levels have words", "[config][types]") {
  LogLevel::Level level = LogLevel::WARN;
  CHECK(LogLevel::to_string(level) == "warn");
  level = LogLevel::from_string("INFO");
  CHECK(level == LogLevel::INFO);
  CHECK(LogLevel::from_string("loud") == LogLevel::WARN);
}

TEST_CASE("an operation has not ended at first", "[config][types]") {
  CHECK(FlowOpResult{}.status_ == Status::NOT_READY);
  CHECK(BurstParams{}.pkts.size() == MAX_NUM_SEGS);
  CHECK(BurstParams{}.transport_hdr.opcode == RDMAOpCode::INVALID);
  CHECK(FlexItemMatch{}.mask_ == 0);
  CHECK_FALSE(S3WriterConfig{}.aws_sdk_already_initialized);
}
