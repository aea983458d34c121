/// Configuration structs. Their fields and defaults are the keys and defaults of the configuration
/// file, which are described in the configuration reference.
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

/// Settings of the whole engine.
struct CommonConfig {
  int version{1};
  int master_core_{0};
  StreamType stream_type{StreamType::RAW};
  /// Protocol of a socket stream. Endpoints with a scheme set it; endpoints given only as address
  /// and port use it.
  SocketProtocol protocol{SocketProtocol::UDP};
  /// Engine as configured; DEFAULT: inferred from addresses and endpoints.
  EngineType engine{EngineType::DEFAULT};
  /// For EngineType::OTHER: the name under which the program registered the engine.
  std::string engine_name_;
  /// Engine that is used; never DEFAULT or UNKNOWN after validation. A value set in code is used
  /// like `engine` if `engine` is DEFAULT.
  EngineType engine_type{EngineType::DEFAULT};
  /// Set by validation: engine_type was inferred from addresses and endpoints. The next validation
  /// infers it again.
  bool engine_inferred_{false};
  /// Set by validation: the sides that the interfaces have.
  Direction dir{Direction::TX_RX};
  LoopbackType loopback_{LoopbackType::DISABLED};
  /// True: the loopback drops packets that do not fit on the receiving side; false: the sender
  /// waits.
  bool loopback_drops_{false};
  /// Compares resolved engines, whether they were configured or inferred.
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
  /// GPU for device memory, otherwise the NUMA node.
  std::uint16_t affinity_{0};
  /// MEM_ACCESS_ bits.
  std::uint32_t access_{MEM_ACCESS_LOCAL};
  std::size_t num_bufs_{0};
  /// Bytes per buffer.
  std::size_t buf_size_{0};
  /// Set at start: distance from one buffer to the next in bytes.
  std::size_t adj_size_{0};
  /// Set at start: total bytes of all buffers.
  std::size_t ttl_size_{0};
  bool owned_{true};
  /// Set by validation: position in `memory_regions`, from 0.
  std::uint32_t position_{0};
  /// Compares the configured values, not those that are set at start.
  bool operator==(const MemoryRegionConfig& other) const {
    return name_ == other.name_ && kind_ == other.kind_ && affinity_ == other.affinity_ &&
           access_ == other.access_ && num_bufs_ == other.num_bufs_ &&
           buf_size_ == other.buf_size_ && owned_ == other.owned_ && position_ == other.position_;
  }
};

/// Value of `cpu_core` for a queue whose thread is not pinned.
inline constexpr std::string_view ANY_CORE = "any";

/// Keys of both receive and transmit queues.
struct CommonQueueConfig {
  std::string name_;
  int id_{0};
  int batch_size_{0};
  /// Receive: bytes of a packet in the first segment; 0: the size of a buffer.
  int split_boundary_{0};
  /// A core number or ANY_CORE; empty with `poll_mode` DIRECT.
  std::string cpu_core_;
  std::vector<std::string> mrs_;
  std::vector<std::string> offloads_;
  DAQIRI_EQUALITY(CommonQueueConfig)
};

/// An entry of `rx.queues`.
struct RxQueueConfig {
  CommonQueueConfig common_;
  /// Time after which a burst that is not full is delivered. 0: on raw streams only full bursts are
  /// delivered, on sockets packets are delivered as soon as they arrive.
  std::uint64_t timeout_us_{0};
  QueuePollMode poll_mode_{QueuePollMode::INDIRECT};
  DAQIRI_EQUALITY(RxQueueConfig)
};

/// An entry of `tx.queues`.
struct TxQueueConfig {
  CommonQueueConfig common_;
  QueuePollMode poll_mode_{QueuePollMode::INDIRECT};
  /// Limit on the L2 data rate in Mbit/s; 0: none.
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
  /// Engine `packet`: receive only packets that match this expression, pcap-filter(7); empty: all
  /// packets.
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

/// `socket_config` of an interface. Set an endpoint either as `scheme://ip:port` (local_addr_,
/// remote_addr_) or as address and port (local_ip_, local_port_, ...); validation fills in both
/// forms.
struct SocketConfig {
  SocketMode mode_{SocketMode::INVALID};
  std::string local_addr_;
  std::string remote_addr_;
  /// Numeric IPv4 or IPv6 address; empty: not set.
  std::string local_ip_;
  std::uint16_t local_port_{0};
  std::string remote_ip_;
  std::uint16_t remote_port_{0};
  /// Bytes; 0: as much as the protocol and the buffers allow.
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

/// An entry of `interfaces`; each is a port.
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
  /// Address of an object store for recorded files, for applications; empty: none.
  std::string ship_to_;
  /// Reorder plans with flows of several interfaces.
  std::vector<ReorderConfig> reorder_configs_;
  DAQIRI_EQUALITY(NetworkConfig)
};

/// Parse and validate configuration text: YAML, below `daqiri: cfg:` or at the top.
///
/// Does not throw for invalid content. The report contains all problems, and `config` the values
/// that could be read. `file` is used in messages only, as the name of the source.
ConfigReport load_config_text(std::string_view yaml, std::string_view file, NetworkConfig& config);

/// Like `load_config_text`, from a file. An unreadable file is a problem in the report.
ConfigReport load_config_file(const std::string& path, NetworkConfig& config);

/// Validate a struct built in code and fill in values that the parser would derive (engine, port
/// ids).
ConfigReport validate_config(NetworkConfig& config);

/// Return the validated configuration as YAML, including all defaults and adjusted values.
std::string config_to_yaml(const NetworkConfig& config);

/// Return the size of a queue's receive ring in packets. On raw streams, `num_bufs` must be at
/// least 1.5 times this value. 0: a socket stream, which has no such ring.
std::uint32_t rx_ring_size(const NetworkConfig& config, const CommonQueueConfig& queue) noexcept;

/// Return the memory regions in the order of the file; regions built in code are sorted by name.
/// The pointers are valid as long as the elements of `config.mrs_`.
std::vector<const MemoryRegionConfig*> memory_regions(const NetworkConfig& config);

/// Return the engine that a configuration selects, also before validation. UNKNOWN: the
/// configuration is not valid.
EngineType get_engine_type(const NetworkConfig& config);

/// Sides that the interfaces of a configuration have.
struct EnabledDirections {
  bool rx{false};
  bool tx{false};
};
/// Return the sides that any interface has.
EnabledDirections get_enabled_directions(const NetworkConfig& config);

/// \}

}  // namespace daqiri
