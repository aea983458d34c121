/// Enumerations and limits of a configuration, and conversions between enumerators and text.
#pragma once

#include <cstdint>
#include <string>

namespace daqiri {

/// \addtogroup configuration
/// \{

/// Largest number of segments of a packet.
inline constexpr int MAX_NUM_SEGS = 4;
/// Array size that programs use. The engines have no such limit.
inline constexpr std::uint32_t MAX_NUM_RX_QUEUES = 32;
/// As MAX_NUM_RX_QUEUES.
inline constexpr std::uint32_t MAX_NUM_TX_QUEUES = 32;
/// As MAX_NUM_RX_QUEUES.
inline constexpr std::uint32_t MAX_INTERFACES = 4;

/// Default of `tx_meta_buffers`.
inline constexpr std::uint32_t DEFAULT_TX_META_BUFFERS = 256;
/// Default of `rx_meta_buffers`.
inline constexpr std::uint32_t DEFAULT_RX_META_BUFFERS = 256;
/// Default of `rx.dynamic_flow_capacity`.
inline constexpr std::uint32_t DEFAULT_DYNAMIC_FLOW_CAPACITY = 0;

/// `stream_type`.
enum class StreamType { RAW, SOCKET, INVALID };
/// `engine`. RDMA: ibverbs on a socket stream, for `roce://`. OTHER: an engine that the program
/// registered; CommonConfig::engine_name_ is its name.
enum class EngineType : int { UNKNOWN = -1, DEFAULT, DPDK, SOCKET, RDMA, IBVERBS, PACKET, OTHER };
/// `loopback`.
enum class LoopbackType { DISABLED, LOOPBACK_TYPE_SW };
/// `kind` of a memory region.
enum class MemoryKind { HOST, HOST_PINNED, HUGE, DEVICE, INVALID };
/// `poll_mode` of a queue.
enum class QueuePollMode { INDIRECT, DIRECT, INVALID };
/// `receive_path` of an interface. AUTO: XDP where it takes no frames from other programs of the
/// host and the driver supports it, otherwise PACKET.
enum class ReceivePath { PACKET, XDP, AUTO };
/// `mode` of a socket.
enum class SocketMode { CLIENT, SERVER, INVALID };
/// Scheme of an endpoint.
enum class SocketProtocol { TCP, UDP, ROCE, INVALID };
/// Sides of a configuration, an interface or a queue.
enum class Direction : std::uint8_t { RX, TX, TX_RX };
/// Memory that contains the segments of a packet.
enum class BufferLocation : std::uint8_t { CPU, GPU, CPU_GPU_SPLIT };
/// Counters of a whole engine, by number; SENTINEL is the number of counters.
enum class ErrorGlobalStats { OUT_OF_RX_BUFFERS, RX_QUEUE_FULL, METADATA_BUF_DEPLETED, SENTINEL };

/// A bit of MemoryRegionConfig::access_.
inline constexpr std::uint32_t MEM_ACCESS_LOCAL = 1U << 0U;
/// A bit of MemoryRegionConfig::access_.
inline constexpr std::uint32_t MEM_ACCESS_RDMA_WRITE = 1U << 1U;
/// A bit of MemoryRegionConfig::access_.
inline constexpr std::uint32_t MEM_ACCESS_RDMA_READ = 1U << 2U;

/// `log_level`.
class LogLevel {
 public:
  /// Levels: TRACE logs all lines, OFF none.
  enum Level : int { TRACE, DEBUG, INFO, WARN, ERROR, CRITICAL, OFF };

  constexpr LogLevel() = default;
  /// Converts from a level.
  constexpr LogLevel(Level level) : level_(level) {}  // NOLINT(google-explicit-constructor)
  /// Converts to the level, for comparisons and `switch`.
  constexpr operator Level() const { return level_; }  // NOLINT(google-explicit-constructor)

  /// Return the value as it is written in the configuration file, e.g. "warn".
  static std::string to_string(Level level);
  /// Return the level for a text in upper or lower case; WARN for any other text.
  static Level from_string(const std::string& text);

 private:
  Level level_{WARN};
};

/// \}

/// \defgroup words Words
/// Conversions to and from the values of the configuration file. An unknown text converts to
/// INVALID, for an engine to UNKNOWN, for a log level to WARN.
/// \{

/// Return "raw" or "socket".
std::string stream_type_to_string(StreamType type);
/// Inverse of `stream_type_to_string`.
StreamType stream_type_from_string(const std::string& text);
/// Return "dpdk", "ibverbs", ...; also "default", "rdma" and "unknown".
std::string engine_type_to_string(EngineType type);
/// Inverse of `engine_type_to_string`.
EngineType engine_type_from_string(const std::string& text);
/// Return "tcp", "udp" or "roce".
std::string socket_protocol_to_string(SocketProtocol protocol);
/// Inverse of `socket_protocol_to_string`; also accepts "rdma".
SocketProtocol socket_protocol_from_string(const std::string& text);
/// Return "host", "host_pinned", "huge" or "device".
std::string memory_kind_to_string(MemoryKind kind);
/// Inverse of `memory_kind_to_string`.
MemoryKind memory_kind_from_string(const std::string& text);
/// Return "trace" to "off".
std::string log_level_to_string(LogLevel level);
/// Inverse of `log_level_to_string`; accepts upper and lower case.
LogLevel::Level log_level_from_string(const std::string& text);

/// \}

}  // namespace daqiri
