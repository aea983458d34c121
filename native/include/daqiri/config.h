/// Configuration structs. They mirror the keys of the configuration file, which its reference
/// describes; a default here is the default there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daqiri/config_report.h"
#include "daqiri/status.h"

namespace daqiri {

/// Number of a flow; 0: none.
using FlowId = std::uint32_t;

/// `stream_type`.
enum class StreamType { RAW, SOCKET };
/// `engine`. OTHER: one that the program registered, by its name in CommonConfig::engine.
enum class EngineType : int { UNKNOWN = -1, DEFAULT, DPDK, SOCKET, RDMA, IBVERBS, PACKET, OTHER };
/// `log_level`.
enum class LogLevel { TRACE, DEBUG, INFO, WARN, ERROR, CRITICAL, OFF };
/// `loopback`.
enum class LoopbackType { NONE, SW };
/// `kind` of a memory region.
enum class MemoryKind { HOST, HOST_PINNED, HUGE, DEVICE };
/// `poll_mode` of a queue.
enum class PollMode { INDIRECT, DIRECT };
/// `mode` of a socket.
enum class SocketMode { CLIENT, SERVER };
/// Scheme of an endpoint.
enum class SocketProtocol { TCP, UDP, ROCE };
/// `type` of a match.
enum class FlowMatchType { IPV4_UDP, FLEX_ITEM, ECPRI };
/// `type` of an action.
enum class FlowActionType { QUEUE, VLAN_PUSH, VLAN_POP, TUNNEL_ENCAP, TUNNEL_DECAP };
/// `type` of a tunnel.
enum class TunnelType { VXLAN, GRE, NVGRE };
/// Where packets are put in order.
enum class ReorderType { GPU, CPU };
/// How a packet tells its batch and place.
enum class ReorderMethod { SEQ_BATCH_NUMBER, SEQ_PACKETS_PER_BATCH };
/// Elements of a payload.
enum class InputDataType { INT4, INT8, INT16, INT32 };
/// Elements of an aggregate.
enum class OutputDataType { FP16, BF16, FP32, FP64, INT32 };
/// Byte order of input elements.
enum class Endianness { HOST, NETWORK };

/// Bits of MemoryRegionConfig::access_.
inline constexpr std::uint32_t MEM_ACCESS_LOCAL = 1U << 0U;
inline constexpr std::uint32_t MEM_ACCESS_RDMA_READ = 1U << 1U;
inline constexpr std::uint32_t MEM_ACCESS_RDMA_WRITE = 1U << 2U;

/// What holds for the whole engine.
struct CommonConfig {
  int version{1};
  int master_core_{0};
  StreamType stream_type{StreamType::RAW};
  /// Protocol of a socket stream, taken from the endpoints' URI schemes.
  SocketProtocol protocol{SocketProtocol::UDP};
  /// As written in the file; empty: inferred.
  std::string engine;
  /// Resolved engine; never DEFAULT or UNKNOWN after validation. Set in code with `engine` empty,
  /// it counts as `engine`.
  EngineType engine_type{EngineType::DEFAULT};
  /// Set by validation: engine_type came from addresses and endpoints, and is inferred anew next
  /// time.
  bool engine_inferred_{false};
  LoopbackType loopback_{LoopbackType::NONE};
  bool operator==(const CommonConfig&) const = default;
};

/// An entry of `memory_regions`.
struct MemoryRegionConfig {
  std::string name_;
  MemoryKind kind_{MemoryKind::HOST};
  /// GPU id for device memory, NUMA node otherwise.
  int affinity_{0};
  std::uint32_t access_{MEM_ACCESS_LOCAL};
  std::uint64_t num_bufs_{0};
  /// Bytes per buffer.
  std::uint64_t buf_size_{0};
  bool owned_{true};
  bool operator==(const MemoryRegionConfig&) const = default;
};

/// Largest flow id that a configuration may give; ids above it are for flows added at run time.
inline constexpr FlowId MAX_STATIC_FLOW_ID = 0x7FFFFF;

/// Inclusive range of ports; lo 0 and hi 0 match any.
struct PortRange {
  std::uint16_t lo{0};
  std::uint16_t hi{0};
  /// Whether it matches every port.
  [[nodiscard]] bool any() const noexcept { return hi == 0; }
  /// Whether it matches this port.
  [[nodiscard]] bool contains(std::uint16_t port) const noexcept {
    return any() || (port >= lo && port <= hi);
  }
  bool operator==(const PortRange&) const = default;
};

/// `match` on bits at a set place.
struct FlexItemMatch {
  int flex_item_id_{0};
  std::uint32_t val_{0};
  std::uint32_t mask_{0xFFFFFFFFU};
  bool operator==(const FlexItemMatch&) const = default;
};

/// `match` on the header of eCPRI messages.
struct EcpriMatch {
  std::uint8_t msg_type_{0};
  bool has_msg_type_{false};
  /// pc_id or rtc_id, whichever the message type carries.
  std::uint16_t id_{0};
  bool has_id_{false};
  bool operator==(const EcpriMatch&) const = default;
};

/// `match` of a flow.
struct FlowMatch {
  FlowMatchType type_{FlowMatchType::IPV4_UDP};
  PortRange udp_src_;
  PortRange udp_dst_;
  /// IPv4 total length in bytes; 0 matches any.
  std::uint16_t ipv4_len_{0};
  /// Host byte order; 0 matches any.
  std::uint32_t ipv4_src_{0};
  std::uint32_t ipv4_dst_{0};
  FlexItemMatch flex_item_match_;
  EcpriMatch ecpri_match_;
  bool operator==(const FlowMatch&) const = default;
};

/// The tag that vlan_push writes.
struct VlanConfig {
  std::uint16_t vlan_id_{0};
  std::uint8_t pcp_{0};
  std::uint8_t dei_{0};
  std::uint16_t ethertype_{0x8100};
  bool operator==(const VlanConfig&) const = default;
};

/// Outer headers of a tunnel.
struct TunnelConfig {
  TunnelType type_{TunnelType::VXLAN};
  std::string outer_eth_src_;
  std::string outer_eth_dst_;
  std::uint32_t outer_ipv4_src_{0};
  std::uint32_t outer_ipv4_dst_{0};
  std::uint8_t outer_ipv4_ttl_{64};
  std::uint8_t outer_ipv4_tos_{0};
  std::uint32_t vni_{0};
  std::uint16_t outer_udp_src_{0};
  std::uint16_t outer_udp_dst_{4789};
  std::uint16_t gre_protocol_{0x0800};
  std::uint32_t tni_{0};
  std::uint8_t flow_id_{0};
  bool operator==(const TunnelConfig&) const = default;
};

/// `action` of a flow, or one of its `actions`.
struct FlowAction {
  FlowActionType type_{FlowActionType::QUEUE};
  /// Queue id. With RSS the queues are in ids_ (two or more), else ids_ is empty.
  std::uint16_t id_{0};
  std::vector<std::uint16_t> ids_;
  VlanConfig vlan_;
  TunnelConfig tunnel_;
  bool operator==(const FlowAction&) const = default;
};

/// A receive flow; also what dynamic flows are added with.
struct FlowRuleConfig {
  std::string name_;
  /// The queue action (the last of actions_).
  FlowAction action_;
  std::vector<FlowAction> actions_;
  FlowMatch match_;
  bool operator==(const FlowRuleConfig&) const = default;
};

/// An entry of `rx.flows`.
struct FlowConfig : FlowRuleConfig {
  FlowId id_{0};
  bool operator==(const FlowConfig&) const = default;
};

/// An entry of `rx.flex_items`.
struct FlexItemConfig {
  std::string name_;
  int id_{0};
  std::uint16_t offset_{0};
  std::uint16_t udp_dst_port_{0};
  bool operator==(const FlexItemConfig&) const = default;
};

/// Where a number lies in a packet, in bits from its first byte.
struct BitFieldConfig {
  std::uint32_t bit_offset_{0};
  std::uint32_t bit_width_{0};
  bool operator==(const BitFieldConfig&) const = default;
};

/// Conversion of elements.
struct DataTypesConfig {
  InputDataType input_type_{InputDataType::INT8};
  OutputDataType output_type_{OutputDataType::FP32};
  Endianness endianness_{Endianness::HOST};
  bool operator==(const DataTypesConfig&) const = default;
};

/// An entry of `rx.reorder_configs`.
struct ReorderConfig {
  std::string name_;
  ReorderType type_{ReorderType::CPU};
  std::string memory_region_;
  std::uint32_t payload_byte_offset_{0};
  std::vector<FlowId> flow_ids_;
  bool has_data_types_{false};
  DataTypesConfig data_types_;
  ReorderMethod method_{ReorderMethod::SEQ_PACKETS_PER_BATCH};
  BitFieldConfig sequence_number_;
  /// seq_batch_number only.
  BitFieldConfig batch_number_;
  /// Given, or derived from the bit widths.
  std::uint32_t packets_per_batch_{0};
  bool operator==(const ReorderConfig&) const = default;
};

/// `cpu_core` of a queue whose thread is not pinned.
inline constexpr std::string_view ANY_CORE = "any";

/// Keys that receive and transmit queues share.
struct QueueConfig {
  std::string name_;
  int id_{0};
  /// A core number or ANY_CORE; empty in direct mode.
  std::string cpu_core_;
  int batch_size_{0};
  std::vector<std::string> mrs_;
  std::vector<std::string> offloads_;
  /// 0: only full bursts are delivered.
  std::uint32_t timeout_us_{0};
  PollMode poll_mode_{PollMode::INDIRECT};
  bool operator==(const QueueConfig&) const = default;
};

/// An entry of `rx.queues`.
struct RxQueueConfig : QueueConfig {
  /// Bytes of a packet that go to the first segment; 0: as many as its buffer holds.
  std::uint32_t split_boundary_{0};
  bool operator==(const RxQueueConfig&) const = default;
};

/// An entry of `tx.queues`.
struct TxQueueConfig : QueueConfig {
  /// L2 megabits per second; 0: not paced.
  std::uint32_t pacing_mbps_{0};
  /// SCHED_FIFO priority of the queue's worker; 0: ordinary scheduling.
  int realtime_priority_{0};
  bool operator==(const TxQueueConfig&) const = default;
};

/// `rx` of an interface.
struct RxConfig {
  bool flow_isolation_{false};
  bool hardware_timestamps_{false};
  std::uint32_t dynamic_flow_capacity_{0};
  std::vector<RxQueueConfig> queues_;
  std::vector<FlowConfig> flows_;
  std::vector<FlexItemConfig> flex_items_;
  std::vector<ReorderConfig> reorder_configs_;
  bool operator==(const RxConfig&) const = default;
};

/// An entry of `tx.flows`.
struct TxFlowConfig {
  std::string name_;
  FlowId id_{0};
  bool has_match_{false};
  FlowMatch match_;
  std::vector<FlowAction> actions_;
  bool operator==(const TxFlowConfig&) const = default;
};

/// `tx` of an interface.
struct TxConfig {
  bool accurate_send_{false};
  std::vector<TxQueueConfig> queues_;
  std::vector<TxFlowConfig> flows_;
  bool operator==(const TxConfig&) const = default;
};

/// An address of a socket, `udp://host:port`.
struct SocketEndpoint {
  SocketProtocol protocol_{SocketProtocol::UDP};
  /// Numeric IPv4 or IPv6 address; empty: not given.
  std::string host_;
  std::uint16_t port_{0};
  /// Whether it was given.
  [[nodiscard]] bool given() const noexcept { return !host_.empty(); }
  bool operator==(const SocketEndpoint&) const = default;
};

/// `socket_config` of an interface.
struct SocketConfig {
  SocketMode mode_{SocketMode::SERVER};
  SocketEndpoint local_addr_;
  SocketEndpoint remote_addr_;
  /// Bytes; 0: the largest that the protocol and the buffers allow.
  std::uint32_t max_payload_size_{0};
  std::uint32_t max_burst_interval_ms_{0};
  std::uint32_t min_ipg_ns_{0};
  std::uint32_t retry_connect_s_{1};
  bool operator==(const SocketConfig&) const = default;
};

/// `roce_config` of an interface.
struct RoceConfig {
  std::string transport_mode_{"RC"};
  bool operator==(const RoceConfig&) const = default;
};

/// An entry of `interfaces`: a port.
struct InterfaceConfig {
  std::string name_;
  std::string address_;
  /// Position in NetworkConfig::ifs_.
  std::uint16_t port_id_{0};
  bool has_socket_{false};
  SocketConfig socket_;
  bool has_roce_{false};
  RoceConfig roce_;
  RxConfig rx_;
  TxConfig tx_;
  bool operator==(const InterfaceConfig&) const = default;
};

/// A whole configuration.
struct NetworkConfig {
  CommonConfig common_;
  std::vector<MemoryRegionConfig> mrs_;
  std::vector<InterfaceConfig> ifs_;
  LogLevel log_level_{LogLevel::WARN};
  bool debug_{false};
  std::uint32_t tx_meta_buffers_{256};
  std::uint32_t rx_meta_buffers_{256};
  bool operator==(const NetworkConfig&) const = default;
};

/// \name Configurations
/// \{

/// Parse and validate configuration text (YAML, root `daqiri: cfg:` or the inner map).
///
/// Never throws for bad content: everything found is in the report, and the struct holds what could
/// be read. `file` only names the source in messages.
ConfigReport load_config_text(std::string_view yaml, std::string_view file, NetworkConfig& config);

/// As above from a file. A file that cannot be read is a problem in the report.
ConfigReport load_config_file(const std::string& path, NetworkConfig& config);

/// Validate a struct built in code and fill in what the parser would derive (engine, port ids).
ConfigReport validate_config(NetworkConfig& config);

/// The validated configuration as YAML, with every default and adjusted value written out.
std::string config_to_yaml(const NetworkConfig& config);

/// Receive ring of a queue in packets (raw streams); `num_bufs` must be at least 1.5 times this.
/// 0: a socket stream, which has no such ring.
std::uint32_t rx_ring_size(const NetworkConfig& config, const QueueConfig& queue) noexcept;

/// \}

}  // namespace daqiri
