/// Configuration structs. They mirror the keys of the configuration file, which its reference
/// describes; a default here is the default there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daqiri/config_report.h"
#include "daqiri/enums.h"
#include "daqiri/flows.h"
#include "daqiri/language.h"
#include "daqiri/rdma.h"
#include "daqiri/reorder.h"
#include "daqiri/status.h"

namespace daqiri {

/// \addtogroup configuration
/// \{

/// What holds for the whole engine.
struct CommonConfig {
  int version{1};
  int master_core_{0};
  StreamType stream_type{StreamType::RAW};
  /// Protocol of a socket stream: the scheme of its endpoints; of endpoints that are given in parts
  /// only, it is their protocol.
  SocketProtocol protocol{SocketProtocol::UDP};
  /// As configured; DEFAULT: inferred from addresses and endpoints.
  EngineType engine{EngineType::DEFAULT};
  /// Name of the engine that the program registered, for EngineType::OTHER.
  std::string engine_name_;
  /// Resolved engine; never DEFAULT or UNKNOWN after validation. Set in code with `engine` DEFAULT,
  /// it counts as `engine`.
  EngineType engine_type{EngineType::DEFAULT};
  /// Set by validation: engine_type came from addresses and endpoints, and is inferred anew next
  /// time.
  bool engine_inferred_{false};
  /// Set by validation: which sides the interfaces have.
  Direction dir{Direction::TX_RX};
  LoopbackType loopback_{LoopbackType::DISABLED};
  /// A loopback drops what finds no room on the receiving side; false: its sender waits.
  bool loopback_drops_{false};
  /// Once the engine is resolved, it is the same whether it was configured or inferred.
  bool operator==(const CommonConfig& other) const {
    const bool resolved = engine_type != EngineType::DEFAULT;
    return version == other.version && master_core_ == other.master_core_ &&
           stream_type == other.stream_type && protocol == other.protocol &&
           (resolved || engine == other.engine) && engine_name_ == other.engine_name_ &&
           engine_type == other.engine_type && dir == other.dir && loopback_ == other.loopback_ &&
           loopback_drops_ == other.loopback_drops_;
  }
};

/// An entry of `memory_regions`.
struct MemoryRegionConfig {
  std::string name_;
  MemoryKind kind_{MemoryKind::HOST};
  /// GPU id for device memory, NUMA node otherwise.
  std::uint16_t affinity_{0};
  /// MEM_ACCESS_ bits.
  std::uint32_t access_{MEM_ACCESS_LOCAL};
  std::size_t num_bufs_{0};
  /// Bytes per buffer.
  std::size_t buf_size_{0};
  /// Set at start: bytes from one buffer to the next.
  std::size_t adj_size_{0};
  /// Set at start: bytes of all buffers.
  std::size_t ttl_size_{0};
  bool owned_{true};
  /// Set by validation: place under `memory_regions`, from 0.
  std::uint32_t position_{0};
  /// As configured, whatever was made of it at start.
  bool operator==(const MemoryRegionConfig& other) const {
    return name_ == other.name_ && kind_ == other.kind_ && affinity_ == other.affinity_ &&
           access_ == other.access_ && num_bufs_ == other.num_bufs_ &&
           buf_size_ == other.buf_size_ && owned_ == other.owned_ && position_ == other.position_;
  }
};

/// `cpu_core` of a queue whose thread is not pinned.
inline constexpr std::string_view ANY_CORE = "any";

/// Keys that receive and transmit queues share.
struct CommonQueueConfig {
  std::string name_;
  int id_{0};
  int batch_size_{0};
  /// Receive: bytes of a packet that go to the first segment; 0: as many as its buffer holds.
  int split_boundary_{0};
  /// A core number or ANY_CORE; empty in direct mode.
  std::string cpu_core_;
  std::vector<std::string> mrs_;
  std::vector<std::string> offloads_;
  DAQIRI_EQUALITY(CommonQueueConfig)
};

/// An entry of `rx.queues`.
struct RxQueueConfig {
  CommonQueueConfig common_;
  /// 0: on raw streams only full bursts are delivered, on sockets what has arrived.
  std::uint64_t timeout_us_{0};
  QueuePollMode poll_mode_{QueuePollMode::INDIRECT};
  DAQIRI_EQUALITY(RxQueueConfig)
};

/// An entry of `tx.queues`.
struct TxQueueConfig {
  CommonQueueConfig common_;
  QueuePollMode poll_mode_{QueuePollMode::INDIRECT};
  /// L2 megabits per second; 0: not paced.
  std::uint64_t pacing_mbps_{0};
  std::uint64_t timeout_us_{0};
  /// SCHED_FIFO priority of the queue's worker; 0: ordinary scheduling.
  int realtime_priority_{0};
  DAQIRI_EQUALITY(TxQueueConfig)
};

/// `rx` of an interface.
struct RxConfig {
  bool flow_isolation_{false};
  bool hardware_timestamps_{false};
  std::uint32_t dynamic_flow_capacity_{DEFAULT_DYNAMIC_FLOW_CAPACITY};
  ReceivePath receive_path_{ReceivePath::PACKET};
  std::vector<RxQueueConfig> queues_;
  std::vector<FlowConfig> flows_;
  std::vector<FlexItemConfig> flex_items_;
  std::vector<ReorderConfig> reorder_configs_;
  /// Only packets that this expression matches are seen, pcap-filter(7); empty: all.
  std::string filter_;
  DAQIRI_EQUALITY(RxConfig)
};

/// `tx` of an interface.
struct TxConfig {
  bool accurate_send_{false};
  std::vector<TxQueueConfig> queues_;
  std::vector<FlowConfig> flows_;
  DAQIRI_EQUALITY(TxConfig)
};

/// `socket_config` of an interface. An endpoint is `scheme://ip:port` in local_addr_ and
/// remote_addr_, or an address and a port in local_ip_, local_port_ and so on; validation sets
/// both.
struct SocketConfig {
  SocketMode mode_{SocketMode::INVALID};
  std::string local_addr_;
  std::string remote_addr_;
  /// Numeric IPv4 or IPv6 address; empty: not given.
  std::string local_ip_;
  std::uint16_t local_port_{0};
  std::string remote_ip_;
  std::uint16_t remote_port_{0};
  /// Bytes; 0: the largest that the protocol and the buffers allow.
  std::uint32_t max_payload_size_{0};
  std::uint32_t max_burst_interval_ms_{0};
  std::uint32_t min_ipg_ns_{0};
  std::uint32_t retry_connect_s_{1};
  DAQIRI_EQUALITY(SocketConfig)
};

/// `roce_config` of an interface.
struct RoCEConfig {
  std::string transport_mode_{"RC"};
  DAQIRI_EQUALITY(RoCEConfig)
};

/// An entry of `interfaces`: a port.
struct InterfaceConfig {
  std::string name_;
  std::string address_;
  /// Position in NetworkConfig::ifs_.
  std::uint16_t port_id_{0};
  /// Set by validation: there is a `socket_config`.
  bool has_socket_{false};
  SocketConfig socket_;
  /// Set by validation: there is a `roce_config`.
  bool has_roce_{false};
  RoCEConfig roce_;
  RDMAConfig rdma_;
  RxConfig rx_;
  TxConfig tx_;
  DAQIRI_EQUALITY(InterfaceConfig)
};

/// A whole configuration.
struct NetworkConfig {
  CommonConfig common_;
  /// By name; `memory_regions` has them in the order of the file.
  std::unordered_map<std::string, MemoryRegionConfig> mrs_;
  std::vector<InterfaceConfig> ifs_;
  LogLevel::Level log_level_{LogLevel::WARN};
  bool debug_{false};
  std::uint32_t tx_meta_buffers_{DEFAULT_TX_META_BUFFERS};
  std::uint32_t rx_meta_buffers_{DEFAULT_RX_META_BUFFERS};
  DAQIRI_EQUALITY(NetworkConfig)
};

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
std::uint32_t rx_ring_size(const NetworkConfig& config, const CommonQueueConfig& queue) noexcept;

/// The memory regions in the order of the file; those built in code by name. Valid while
/// `config.mrs_` is.
std::vector<const MemoryRegionConfig*> memory_regions(const NetworkConfig& config);

/// Engine that a configuration selects, also before validation; UNKNOWN: it does not validate.
EngineType get_engine_type(const NetworkConfig& config);

/// Sides that a configuration has.
struct EnabledDirections {
  bool rx{false};
  bool tx{false};
};
/// Sides of all interfaces.
EnabledDirections get_enabled_directions(const NetworkConfig& config);

/// \}

}  // namespace daqiri
