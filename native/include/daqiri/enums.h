/// The words and limits of a configuration, and the words as text.
#pragma once

#include <cstdint>
#include <string>

namespace daqiri {

/// \addtogroup configuration
/// \{

/// Segments that a packet can have.
inline constexpr int MAX_NUM_SEGS = 4;
/// For programs that size arrays by it; the engines here have no such limit.
inline constexpr std::uint32_t MAX_NUM_RX_QUEUES = 32;
/// As MAX_NUM_RX_QUEUES.
inline constexpr std::uint32_t MAX_NUM_TX_QUEUES = 32;
/// As MAX_NUM_RX_QUEUES.
inline constexpr std::uint32_t MAX_INTERFACES = 4;

/// `tx_meta_buffers` where the file has none.
inline constexpr std::uint32_t DEFAULT_TX_META_BUFFERS = 256;
/// `rx_meta_buffers` where the file has none.
inline constexpr std::uint32_t DEFAULT_RX_META_BUFFERS = 256;
/// `rx.dynamic_flow_capacity` where the file has none.
inline constexpr std::uint32_t DEFAULT_DYNAMIC_FLOW_CAPACITY = 0;

/// `stream_type`.
enum class StreamType { RAW, SOCKET, INVALID };
/// `engine`. RDMA: ibverbs on a socket stream, for `roce://`. OTHER: one that the program
/// registered, by its name in CommonConfig::engine_name_.
enum class EngineType : int { UNKNOWN = -1, DEFAULT, DPDK, SOCKET, RDMA, IBVERBS, PACKET, OTHER };
/// `loopback`.
enum class LoopbackType { DISABLED, LOOPBACK_TYPE_SW };
/// `kind` of a memory region.
enum class MemoryKind { HOST, HOST_PINNED, HUGE, DEVICE, INVALID };
/// `poll_mode` of a queue.
enum class QueuePollMode { INDIRECT, DIRECT, INVALID };
/// `receive_path` of an interface. AUTO: XDP where nobody else on the host needs what it takes, and
/// the driver has it, else PACKET.
enum class ReceivePath { PACKET, XDP, AUTO };
/// `mode` of a socket.
enum class SocketMode { CLIENT, SERVER, INVALID };
/// Scheme of an endpoint.
enum class SocketProtocol { TCP, UDP, ROCE, INVALID };
/// What a configuration, an interface or a queue does.
enum class Direction : std::uint8_t { RX, TX, TX_RX };
/// Where the segments of a packet lie.
enum class BufferLocation : std::uint8_t { CPU, GPU, CPU_GPU_SPLIT };
/// Counters of a whole engine, by number; SENTINEL is how many there are.
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
  /// From all lines to none.
  enum Level : int { TRACE, DEBUG, INFO, WARN, ERROR, CRITICAL, OFF };

  constexpr LogLevel() = default;
  /// A level, where one is asked for.
  constexpr LogLevel(Level level) : level_(level) {}  // NOLINT(google-explicit-constructor)
  /// The level, for comparisons and `switch`.
  constexpr operator Level() const { return level_; }  // NOLINT(google-explicit-constructor)

  /// The word of the configuration file: "warn".
  static std::string to_string(Level level);
  /// The level that a word names, in any case; WARN for any other text.
  static Level from_string(const std::string& text);

 private:
  Level level_{WARN};
};

/// \}

/// \defgroup words Words
/// Words as the configuration file has them. Of a text that is none: UNKNOWN, INVALID, or WARN for
/// a level.
/// \{

/// Word of a stream type: "raw", "socket".
std::string stream_type_to_string(StreamType type);
/// Stream type of a word.
StreamType stream_type_from_string(const std::string& text);
/// Word of an engine: "dpdk", "ibverbs", ... and "default", "rdma", "unknown".
std::string engine_type_to_string(EngineType type);
/// Engine of a word.
EngineType engine_type_from_string(const std::string& text);
/// Word of a protocol: "tcp", "udp", "roce".
std::string socket_protocol_to_string(SocketProtocol protocol);
/// Protocol of a word, "rdma" included.
SocketProtocol socket_protocol_from_string(const std::string& text);
/// Word of a kind of memory: "host", "host_pinned", "huge", "device".
std::string memory_kind_to_string(MemoryKind kind);
/// Kind of memory of a word.
MemoryKind memory_kind_from_string(const std::string& text);
/// Word of a level: "trace" to "off".
std::string log_level_to_string(LogLevel level);
/// Level of a word, in any case.
LogLevel::Level log_level_from_string(const std::string& text);

/// \}

}  // namespace daqiri
