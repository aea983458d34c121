/// Values that are written as text: keywords, and formats such as addresses, endpoints and port
/// ranges.
///
/// Functions that read a text return its problem; the target is then unchanged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "daqiri/config.h"

namespace daqiri::config {

/// A keyword of the configuration file and its enumerator; one table per enumeration.
struct Name {
  constexpr Name(std::string_view word, auto meaning)
      : text(word), value(static_cast<int>(meaning)) {}

  std::string_view text;
  int value;
};
using Names = std::span<const Name>;

inline constexpr Name STREAM_TYPES[] = {{"raw", StreamType::RAW}, {"socket", StreamType::SOCKET}};
inline constexpr Name ENGINES[] = {{"dpdk", EngineType::DPDK},
                                   {"ibverbs", EngineType::IBVERBS},
                                   {"socket", EngineType::SOCKET},
                                   {"packet", EngineType::PACKET}};
inline constexpr Name LOG_LEVELS[] = {{"trace", LogLevel::TRACE}, {"debug", LogLevel::DEBUG},
                                      {"info", LogLevel::INFO},   {"warn", LogLevel::WARN},
                                      {"error", LogLevel::ERROR}, {"critical", LogLevel::CRITICAL},
                                      {"off", LogLevel::OFF}};
inline constexpr Name LOOPBACK_TYPES[] = {{"", LoopbackType::DISABLED},
                                          {"sw", LoopbackType::LOOPBACK_TYPE_SW}};
inline constexpr Name MEMORY_KINDS[] = {{"huge", MemoryKind::HUGE},
                                        {"device", MemoryKind::DEVICE},
                                        {"host_pinned", MemoryKind::HOST_PINNED},
                                        {"host", MemoryKind::HOST}};
/// Bits of MemoryRegionConfig::access_.
inline constexpr Name MEMORY_ACCESS[] = {{"local", MEM_ACCESS_LOCAL},
                                         {"rdma_read", MEM_ACCESS_RDMA_READ},
                                         {"rdma_write", MEM_ACCESS_RDMA_WRITE}};
inline constexpr Name POLL_MODES[] = {{"indirect", QueuePollMode::INDIRECT},
                                      {"direct", QueuePollMode::DIRECT}};
inline constexpr Name RECEIVE_PATHS[] = {
    {"af_packet", ReceivePath::PACKET}, {"af_xdp", ReceivePath::XDP}, {"auto", ReceivePath::AUTO}};
inline constexpr Name SOCKET_MODES[] = {{"client", SocketMode::CLIENT},
                                        {"server", SocketMode::SERVER}};
/// Schemes of endpoint addresses; the last one is an alias.
inline constexpr Name SCHEMES[] = {{"tcp", SocketProtocol::TCP},
                                   {"udp", SocketProtocol::UDP},
                                   {"roce", SocketProtocol::ROCE},
                                   {"rdma", SocketProtocol::ROCE}};
inline constexpr Name TRANSPORT_MODES[] = {
    {"RC", RDMATransportMode::RC}, {"UC", RDMATransportMode::UC}, {"UD", RDMATransportMode::UD}};
inline constexpr Name OFFLOADS[] = {{"tx_eth_src", 0}};
/// The first three for receive flows, the last two for transmit flows.
inline constexpr Name ACTIONS[] = {{"queue", FlowType::QUEUE},
                                   {"vlan_pop", FlowType::VLAN_POP},
                                   {"tunnel_decap", FlowType::TUNNEL_DECAP},
                                   {"vlan_push", FlowType::VLAN_PUSH},
                                   {"tunnel_encap", FlowType::TUNNEL_ENCAP}};
inline constexpr Names RX_ACTIONS = Names(ACTIONS).first(3);
inline constexpr Names TX_ACTIONS = Names(ACTIONS).last(2);
inline constexpr Name TUNNEL_TYPES[] = {
    {"vxlan", TunnelType::VXLAN}, {"gre", TunnelType::GRE}, {"nvgre", TunnelType::NVGRE}};
inline constexpr Name REORDER_TYPES[] = {{"gpu", 0}, {"cpu", 1}};
inline constexpr Name INPUT_TYPES[] = {
    {"int4", ReorderDataType::INT4},     {"int8", ReorderDataType::INT8},
    {"int10", ReorderDataType::INT10},   {"int12", ReorderDataType::INT12},
    {"int14", ReorderDataType::INT14},   {"int16", ReorderDataType::INT16},
    {"int24", ReorderDataType::INT24},   {"int32", ReorderDataType::INT32},
    {"int64", ReorderDataType::INT64},   {"uint4", ReorderDataType::UINT4},
    {"uint8", ReorderDataType::UINT8},   {"uint10", ReorderDataType::UINT10},
    {"uint12", ReorderDataType::UINT12}, {"uint14", ReorderDataType::UINT14},
    {"uint16", ReorderDataType::UINT16}, {"uint24", ReorderDataType::UINT24},
    {"uint32", ReorderDataType::UINT32}, {"uint64", ReorderDataType::UINT64},
    {"fp16", ReorderDataType::FP16},     {"fp32", ReorderDataType::FP32},
    {"fp64", ReorderDataType::FP64}};
inline constexpr Name OUTPUT_TYPES[] = {
    {"fp16", ReorderDataType::FP16},     {"bf16", ReorderDataType::BF16},
    {"fp32", ReorderDataType::FP32},     {"fp64", ReorderDataType::FP64},
    {"int32", ReorderDataType::INT32},   {"int8", ReorderDataType::INT8},
    {"int16", ReorderDataType::INT16},   {"int64", ReorderDataType::INT64},
    {"uint8", ReorderDataType::UINT8},   {"uint16", ReorderDataType::UINT16},
    {"uint32", ReorderDataType::UINT32}, {"uint64", ReorderDataType::UINT64}};
/// With the number of bits per element.
inline constexpr Name FRAME_DTYPES[] = {
    {"int8", 8},   {"uint8", 8},   {"int16", 16},   {"uint16", 16},  {"int32", 32},  {"uint32", 32},
    {"int64", 64}, {"uint64", 64}, {"float16", 16}, {"float32", 32}, {"float64", 64}};
inline constexpr Name BYTE_ORDERS[] = {{"big", ReorderByteOrder::BIG},
                                       {"little", ReorderByteOrder::LITTLE}};
/// Packets that a column is made of.
inline constexpr Name COLUMN_SOURCES[] = {{"first", ReorderColumnSource::FIRST},
                                          {"sum", ReorderColumnSource::SUM},
                                          {"packets", ReorderColumnSource::PACKETS}};
inline constexpr Name BASES[] = {{"packet", ReorderBase::PACKET},
                                 {"udp_payload", ReorderBase::UDP_PAYLOAD}};
inline constexpr Name ENDIANNESS[] = {{"host", ReorderEndianness::HOST},
                                      {"network", ReorderEndianness::NETWORK}};
inline constexpr Name FLIPS[] = {{"none", ReorderFlip::NONE},
                                 {"rows", ReorderFlip::ROWS},
                                 {"columns", ReorderFlip::COLUMNS},
                                 {"both", ReorderFlip::BOTH}};
inline constexpr Name PACKINGS[] = {{"msb", ReorderPacking::MSB}, {"lsb", ReorderPacking::LSB}};

/// The key of a plan's method.
constexpr std::string_view key_of(ReorderMethod method) noexcept {
  switch (method) {
    case ReorderMethod::SEQ_BATCH_NUMBER:
      return "seq_batch_number";
    case ReorderMethod::BATCH_PACKET_NUMBER:
      return "batch_packet_number";
    case ReorderMethod::BATCH_BYTE_OFFSET:
      return "batch_byte_offset";
    default:
      return "seq_packets_per_batch";
  }
}

/// Engine of a validated configuration, as a file names it.
std::string engine_name(const CommonConfig& common);
/// Text of CommonConfig::engine in a file; empty: the engine is inferred.
std::string engine_word(const CommonConfig& common);
/// Enumerator of the engine with this name for a stream; OTHER: it has none.
EngineType engine_type_of(std::string_view name, const CommonConfig& common) noexcept;
/// Whether one engine serves both: CommonConfig::engine and engine_type.
bool same_engine(EngineType configured, EngineType resolved) noexcept;
/// What a configuration with `loopback: sw` reports: DAQIRI's loopback is one of DPDK.
inline constexpr std::string_view LOOPBACK_ENGINE = "dpdk";

/// Converts ASCII letters to lower case.
std::string lower(std::string_view text);

/// The entry with this text; null if there is none.
const Name* find_name(Names names, std::string_view text) noexcept;

/// The first text for a value; its decimal digits if the table does not contain it.
template <class Value>
std::string text_of(Names names, Value value) {
  const auto number = static_cast<int>(value);
  const auto found = std::ranges::find(names, number, &Name::value);
  return found == names.end() ? std::to_string(number) : std::string(found->text);
}

/// "'raw' or 'socket'".
std::string alternatives(Names names);
/// What is wrong with a text that should be one of the names; empty: nothing.
std::string wrong_word(Names names, std::string_view text);

/// Inclusive. `unit`: the unit in messages.
struct Range {
  std::int64_t first;
  std::int64_t last;
  std::string_view unit{};
};
inline constexpr Range CPU_CORE{0, 8191};
inline constexpr Range PORT{1, 65535};
inline constexpr Range ETHERTYPE{1, 65535};
inline constexpr Range BYTE{0, 255};
inline constexpr Range WORD{0, 65535};

/// Digits, `0x` and `0o` numbers with an optional sign.
std::string read_integer(std::string_view text, const Range& range, std::int64_t& value);
std::string accepts_integer(const Range& range);

/// Text of an address in network byte order; empty for 0, which means any.
std::string write_ipv4(const in_addr_t& address);

/// `scheme://host:port`.
struct Endpoint {
  SocketProtocol protocol{SocketProtocol::INVALID};
  /// Numeric IPv4 or IPv6 address.
  std::string host;
  /// 0: no port, which RoCE allows.
  std::uint16_t port{0};
};
/// Returns what is wrong with the text; empty: nothing.
std::string read_endpoint(std::string_view text, Endpoint& endpoint);
std::string write_endpoint(const Endpoint& endpoint);

/// Numeric IPv4 or IPv6 address, the latter with or without a scope (fe80::1%eth0).
bool is_ip_address(std::string_view text);
bool is_ipv6_address(std::string_view text);

/// Returns what is wrong with the address of an object store, `s3://bucket/prefix`; empty: nothing.
std::string store_address_error(std::string_view text);

/// How a value is written; `write` returns an empty text for a value to omit.
template <class Value>
struct Form {
  std::string_view accepts;
  std::string (*read)(std::string_view text, Value& value);
  std::string (*write)(const Value& value);
};
extern const Form<in_addr_t> ipv4_form;
/// The same, stored as text.
extern const Form<std::string> ipv4_text_form;
extern const Form<std::string> ip_form;
extern const Form<std::string> mac_form;
/// A port or "low-high".
extern const Form<PortRange> ports_form;
/// A core number, stored as its digits, or ANY_CORE.
extern const Form<std::string> core_form;
/// A number, or `nan`; 0 is the default and is not written.
extern const Form<double> real_form;
/// An integer of 64 bits, not negative.
extern const Form<std::uint64_t> natural_form;
/// Difference of batch numbers; `any`: 0.
extern const Form<std::uint64_t> batch_step_form;
/// A rotation in steps of 90 degrees.
extern const Form<std::uint32_t> rotation_form;
/// `scheme://ip:port`; the port can be omitted for RoCE.
extern const Form<std::string> endpoint_form;
/// Name of a column of frames.
extern const Form<std::string> column_form;
/// Address of an object store.
extern const Form<std::string> store_form;

}  // namespace daqiri::config
