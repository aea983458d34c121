// Conversions between enumerators and the words of the configuration file.
#include "config/formats.h"
#include "daqiri/reorder.h"

namespace daqiri {

namespace {

constexpr config::Name OTHER_ENGINES[] = {{"unknown", EngineType::UNKNOWN},
                                          {"default", EngineType::DEFAULT},
                                          {"rdma", EngineType::RDMA},
                                          {"other", EngineType::OTHER}};
constexpr config::Name SAME_TYPE[] = {{"same", ReorderDataType::SAME}};

/// The word for a value in the first table that contains it; otherwise "invalid".
template <class Value>
std::string word_of(Value value, std::initializer_list<config::Names> tables) {
  for (const config::Names names : tables) {
    for (const config::Name& name : names) {
      if (name.value == static_cast<int>(value)) return std::string(name.text);
    }
  }
  return "invalid";
}

template <class Value>
Value value_of(const std::string& text, std::initializer_list<config::Names> tables, Value none) {
  for (const config::Names names : tables) {
    if (const config::Name* name = config::find_name(names, text))
      return static_cast<Value>(name->value);
  }
  return none;
}

}  // namespace

std::string LogLevel::to_string(Level level) { return word_of(level, {config::LOG_LEVELS}); }
LogLevel::Level LogLevel::from_string(const std::string& text) {
  return value_of(config::lower(text), {config::LOG_LEVELS}, WARN);
}
std::string log_level_to_string(LogLevel level) { return LogLevel::to_string(level); }
LogLevel::Level log_level_from_string(const std::string& text) {
  return LogLevel::from_string(text);
}

std::string stream_type_to_string(StreamType type) { return word_of(type, {config::STREAM_TYPES}); }
StreamType stream_type_from_string(const std::string& text) {
  return value_of(text, {config::STREAM_TYPES}, StreamType::INVALID);
}
std::string engine_type_to_string(EngineType type) {
  return word_of(type, {config::ENGINES, OTHER_ENGINES});
}
EngineType engine_type_from_string(const std::string& text) {
  return value_of(text, {config::ENGINES, OTHER_ENGINES}, EngineType::UNKNOWN);
}
std::string socket_protocol_to_string(SocketProtocol protocol) {
  return word_of(protocol, {config::SCHEMES});
}
SocketProtocol socket_protocol_from_string(const std::string& text) {
  return value_of(text, {config::SCHEMES}, SocketProtocol::INVALID);
}
std::string memory_kind_to_string(MemoryKind kind) { return word_of(kind, {config::MEMORY_KINDS}); }
MemoryKind memory_kind_from_string(const std::string& text) {
  return value_of(text, {config::MEMORY_KINDS}, MemoryKind::INVALID);
}

std::string flow_type_to_string(FlowType type) { return word_of(type, {config::ACTIONS}); }
FlowType flow_type_from_string(const std::string& text) {
  return value_of(text, {config::ACTIONS}, FlowType::QUEUE);
}
std::string tunnel_type_to_string(TunnelType type) {
  return type == TunnelType::NONE ? "none" : word_of(type, {config::TUNNEL_TYPES});
}
TunnelType tunnel_type_from_string(const std::string& text) {
  return value_of(text, {config::TUNNEL_TYPES}, TunnelType::NONE);
}

std::string reorder_data_type_to_string(ReorderDataType type) {
  return word_of(type, {SAME_TYPE, config::INPUT_TYPES, config::OUTPUT_TYPES});
}
ReorderDataType reorder_data_type_from_string(const std::string& text) {
  return value_of(text, {SAME_TYPE, config::INPUT_TYPES, config::OUTPUT_TYPES},
                  ReorderDataType::INVALID);
}
std::string reorder_endianness_to_string(ReorderEndianness endianness) {
  return word_of(endianness, {config::ENDIANNESS});
}
ReorderEndianness reorder_endianness_from_string(const std::string& text) {
  return value_of(text, {config::ENDIANNESS}, ReorderEndianness::INVALID);
}

}  // namespace daqiri
