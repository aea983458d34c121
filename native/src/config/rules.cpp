// Interfaces, the engine, and keys that the engine does not use.
#include "config/rules.h"

#include "config/formats.h"
#include "config/schema.h"
#include "daqiri/error.h"
#include "engine/registry.h"

namespace daqiri::config {
namespace {

void check_interfaces(const Subject& subject) {
  auto& interfaces = subject.config.ifs_;
  const Place list = subject.root["interfaces"];
  constexpr std::size_t MOST_PORTS = 65536;
  if (interfaces.empty()) list.error("found an empty list; accepts at least one interface");
  if (interfaces.size() > MOST_PORTS)
    list.error("found ", interfaces.size(), " interfaces; accepts at most ", MOST_PORTS);
  check_unique(subject.root, "interfaces", "name", interfaces, &InterfaceConfig::name_);
  std::uint16_t port = 0;
  for (auto& [interface, at] : subject.interfaces()) {
    interface.port_id_ = port++;
    if (!at.bad() && !at["rx"].given() && !at["tx"].given())
      at.warning("has neither rx nor tx: nothing is received or sent here");
  }
  if (subject.in_memory() && subject.sockets())
    subject.root["loopback"].error(
        "found 'sw' beside stream_type: socket; accepts it beside stream_type: raw (a socket loops "
        "back on 127.0.0.1)");
}

/// Engine that the addresses of a raw stream ask for. DEFAULT when one of them is wrong.
EngineType engine_of_addresses(const Subject& subject) {
  constexpr std::string_view PCI = "a PCI address such as 0000:05:00.0";
  constexpr std::string_view LINUX = "a Linux interface name";
  const std::string& engine = subject.config.common_.engine;
  if (subject.in_memory()) return EngineType::DPDK;
  EngineType inferred = EngineType::DEFAULT;
  std::string inferred_from;
  bool all_good = true;
  for (const auto& [interface, place] : subject.interfaces()) {
    const Place at = place["address"];
    const std::string found = "found " + quoted(interface.address_);
    const AddressKind kind = address_kind(interface.address_);
    const bool pci = kind == AddressKind::PCI;
    const bool wire = kind == AddressKind::LOOPBACK;
    const EngineType wanted = pci ? EngineType::DPDK : EngineType::PACKET;
    if (wire && subject.root["loopback"].bad()) {
      all_good = false;
    } else if (!pci && kind != AddressKind::INTERFACE) {
      at.error(found, wire ? ", the in-memory wire, without loopback: sw" : "", "; accepts ", PCI,
               " or ", LINUX);
    } else if (engine == (pci ? "packet" : "dpdk")) {
      at.error(found, " beside engine: ", engine, "; accepts ", pci ? LINUX : PCI,
               " (engine: ", text_of(ENGINES, wanted), " takes ", pci ? PCI : LINUX, ")");
    } else if (inferred == EngineType::DEFAULT) {
      inferred = wanted;
      inferred_from = at.path();
    } else if (wanted != inferred && engine.empty()) {
      at.error(found, ", for engine ", text_of(ENGINES, wanted), ", while ", inferred_from,
               " is for engine ", text_of(ENGINES, inferred),
               "; accepts addresses of one kind, or engine: ibverbs");
    }
    all_good = all_good && !at.bad();
  }
  return all_good ? inferred : EngineType::DEFAULT;
}

EngineType engine_of(const Subject& subject, const Place& at) {
  const CommonConfig& common = subject.config.common_;
  const Name* named = find_name(ENGINES, common.engine);
  if (named == nullptr && !common.engine.empty()) return EngineType::OTHER;
  EngineType inferred = EngineType::DEFAULT;
  if (!subject.raw()) {
    const bool roce = common.protocol == SocketProtocol::ROCE;
    inferred = roce ? EngineType::IBVERBS : EngineType::SOCKET;
    if (subject.transport_known && named != nullptr && named->text != text_of(ENGINES, inferred))
      at.error("found ", quoted(common.engine), " beside stream_type: socket with ",
               text_of(SCHEMES, common.protocol), ":// endpoints; accepts '",
               text_of(ENGINES, inferred), "'");
  } else if (common.engine == "socket") {
    at.error("found 'socket' beside stream_type: raw; accepts 'dpdk', 'ibverbs' or 'packet'");
  } else {
    inferred = engine_of_addresses(subject);
  }
  if (at.bad()) return EngineType::DEFAULT;
  return named != nullptr ? static_cast<EngineType>(named->value) : inferred;
}

/// A value that is written in the same way: a scalar, or a list of scalars.
std::string printed(const Node& node) {
  if (node.kind != Node::Kind::LIST) return quoted(node.text);
  std::string text;
  for (const Node& item : node.items) text += concat(text.empty() ? "" : ", ", item.text);
  return "[" + text + "]";
}

/// Calls `visit` with each value below `map`, its place, and its path as in UnusedKey.
template <class Visit>
void for_each_value(const Node& map, const Place& at, const std::string& path, const Visit& visit) {
  for (const auto& [key, value] : map.entries) {
    visit(value, at[key.text], path + key.text);
    for_each_value(value, at[key.text], path + key.text + ".", visit);
    for (const auto& [item, place] : placed(value.items, at[key.text]))
      for_each_value(item, place, path + key.text + "[].", visit);
  }
}

}  // namespace

EngineTraits traits_of(const NetworkConfig& config) noexcept {
  try {
    return engine_for(config).traits;
  } catch (const Error&) {
    return {};
  }
}

void apply_rules(NetworkConfig& config, Findings& findings) {
  Subject subject{config, Place(findings)};
  check_interfaces(subject);
  resolve_transport(subject);
  resolve_engine(subject);
  for (auto& [interface, at] : subject.interfaces()) {
    check_socket(subject, interface, at);
    check_queues(subject, interface, at);
    check_flows(subject, interface, at);
    check_reorder(subject, interface, at);
  }
  raise_num_bufs(subject);
  check_unused(subject);
}

void resolve_engine(Subject& subject) {
  CommonConfig& common = subject.config.common_;
  const Place at = subject.root["engine"];
  common.engine_type = EngineType::DEFAULT;
  common.engine_inferred_ = common.engine.empty();
  if (subject.root["stream_type"].bad() || at.bad()) return;
  common.engine_type = engine_of(subject, at);
  subject.traits = traits_of(subject.config);
  if (common.engine_type == EngineType::OTHER && subject.traits.name != common.engine)
    at.error("found ", quoted(common.engine),
             ", an engine that does not take this configuration; accepts ", alternatives(ENGINES));
}

void check_unused(const Subject& subject) {
  if (subject.traits.unused_keys.empty()) return;
  std::map<std::string, std::string> standard;
  for_each_value(default_config(), subject.root, {},
                 [&](const Node& value, const Place&, const std::string& path) {
                   standard[path] = printed(value);
                 });
  const auto check = [&](const Node& value, const Place& at, const std::string& path) {
    const auto unused = std::ranges::find(subject.traits.unused_keys, path, &UnusedKey::path);
    if (unused == subject.traits.unused_keys.end() || at.bad()) return;
    const std::string found = printed(value);
    // An empty list is what is left of words that are wrong.
    if (found == standard[path] || found == "[]") return;
    constexpr std::size_t NUMBER = std::string_view("interfaces[").size();
    if (unused->when == nullptr ||
        unused->when(subject.config.ifs_[std::stoul(at.path().substr(NUMBER))]))
      at.warning("found ", found, ", which has no effect on engine '", subject.traits.name, "'; ",
                 unused->instead);
  };
  for_each_value(write_config(subject.config), subject.root, {}, check);
}

}  // namespace daqiri::config
