/// Words of the configuration file and what they stand for: one table per enumeration.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daqiri/config.h"

namespace daqiri::config {

struct Name {
  std::string_view text;
  int value;
};
using Names = std::span<const Name>;

template <class E>
constexpr Name name(std::string_view text, E value) {
  return {text, static_cast<int>(value)};
}

inline constexpr Name STREAM_TYPES[] = {name("raw", StreamType::RAW),
                                        name("socket", StreamType::SOCKET)};
inline constexpr Name ENGINES[] = {
    name("dpdk", EngineType::DPDK), name("ibverbs", EngineType::IBVERBS),
    name("socket", EngineType::SOCKET), name("packet", EngineType::PACKET)};
inline constexpr Name LOG_LEVELS[] = {
    name("trace", LogLevel::TRACE), name("debug", LogLevel::DEBUG),
    name("info", LogLevel::INFO),   name("warn", LogLevel::WARN),
    name("error", LogLevel::ERROR), name("critical", LogLevel::CRITICAL),
    name("off", LogLevel::OFF)};
inline constexpr Name LOOPBACK_TYPES[] = {name("", LoopbackType::NONE),
                                          name("sw", LoopbackType::SW)};
inline constexpr Name MEMORY_KINDS[] = {
    name("huge", MemoryKind::HUGE), name("device", MemoryKind::DEVICE),
    name("host_pinned", MemoryKind::HOST_PINNED), name("host", MemoryKind::HOST)};
/// Bits of MemoryRegionConfig::access_.
inline constexpr Name MEMORY_ACCESS[] = {name("local", MEM_ACCESS_LOCAL),
                                         name("rdma_read", MEM_ACCESS_RDMA_READ),
                                         name("rdma_write", MEM_ACCESS_RDMA_WRITE)};
inline constexpr Name POLL_MODES[] = {name("indirect", PollMode::INDIRECT),
                                      name("direct", PollMode::DIRECT)};
inline constexpr Name SOCKET_MODES[] = {name("client", SocketMode::CLIENT),
                                        name("server", SocketMode::SERVER)};
/// Schemes of endpoint addresses; the last is an alias.
inline constexpr Name SCHEMES[] = {
    name("tcp", SocketProtocol::TCP), name("udp", SocketProtocol::UDP),
    name("roce", SocketProtocol::ROCE), name("rdma", SocketProtocol::ROCE)};
inline constexpr Name TRANSPORT_MODES[] = {{"RC", 0}, {"UC", 1}};
inline constexpr Name OFFLOADS[] = {{"tx_eth_src", 0}};
/// Three of receive flows, two of transmit flows.
inline constexpr Name ACTIONS[] = {name("queue", FlowActionType::QUEUE),
                                   name("vlan_pop", FlowActionType::VLAN_POP),
                                   name("tunnel_decap", FlowActionType::TUNNEL_DECAP),
                                   name("vlan_push", FlowActionType::VLAN_PUSH),
                                   name("tunnel_encap", FlowActionType::TUNNEL_ENCAP)};
inline constexpr Names RX_ACTIONS = Names(ACTIONS).first(3);
inline constexpr Names TX_ACTIONS = Names(ACTIONS).last(2);
inline constexpr Name TUNNEL_TYPES[] = {name("vxlan", TunnelType::VXLAN),
                                        name("gre", TunnelType::GRE),
                                        name("nvgre", TunnelType::NVGRE)};
inline constexpr Name REORDER_TYPES[] = {name("gpu", ReorderType::GPU),
                                         name("cpu", ReorderType::CPU)};
inline constexpr Name INPUT_TYPES[] = {
    name("int4", InputDataType::INT4), name("int8", InputDataType::INT8),
    name("int16", InputDataType::INT16), name("int32", InputDataType::INT32)};
inline constexpr Name OUTPUT_TYPES[] = {
    name("fp16", OutputDataType::FP16), name("bf16", OutputDataType::BF16),
    name("fp32", OutputDataType::FP32), name("fp64", OutputDataType::FP64),
    name("int32", OutputDataType::INT32)};
inline constexpr Name ENDIANNESS[] = {name("host", Endianness::HOST),
                                      name("network", Endianness::NETWORK)};

/// ENGINES, and what else is registered.
std::vector<Name> engine_names();
/// The engine of a validated configuration.
std::string engine_name(const CommonConfig& common);

/// The entry with this text; null when there is none.
const Name* find_name(Names names, std::string_view text) noexcept;

/// The first text of a value; the number in digits when the table has none.
std::string text_of(Names names, int value);

template <class E>
std::string text_of(Names names, E value) {
  return text_of(names, static_cast<int>(value));
}

/// "'raw' or 'socket'".
std::string alternatives(Names names);

}  // namespace daqiri::config
