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
  for (std::size_t i = 0; i < interfaces.size(); ++i) {
    interfaces[i].port_id_ = static_cast<std::uint16_t>(i);
    const Place at = subject.interface(i);
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
  for (std::size_t i = 0; i < subject.config.ifs_.size(); ++i) {
    const Place at = subject.interface(i)["address"];
    const std::string found = "found " + quoted(subject.config.ifs_[i].address_);
    const AddressKind kind = address_kind(subject.config.ifs_[i].address_);
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

/// Warns of the values of `unused`, the rest of whose path is `path`, that are not the standard.
void check_unused(const Subject& subject, const UnusedKey& unused, std::string_view path,
                  const Node& node, const Node& standard, const Place& at) {
  const std::size_t end = path.find_first_of(".[");
  const std::string_view key = path.substr(0, end);
  const Node::Entry* value = node.entry(key);
  const Node::Entry* usual = standard.entry(key);
  if (value == nullptr || usual == nullptr) return;
  const std::vector<Node>& items = value->value.items;
  if (end == std::string_view::npos) {
    const std::string found = printed(value->value);
    // An empty list is what is left of words that are wrong.
    if (found != printed(usual->value) && found != "[]" && !at[key].bad())
      at[key].warning("found ", found, ", which has no effect on engine '", subject.traits.name,
                      "'; ", unused.instead);
  } else if (path[end] == '.') {
    check_unused(subject, unused, path.substr(end + 1), value->value, usual->value, at[key]);
  } else {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool used =
          key == "interfaces" && unused.when != nullptr && !unused.when(subject.config.ifs_[i]);
      if (!used)
        check_unused(subject, unused, path.substr(end + 3), items[i], usual->value.items.front(),
                     at[key][i]);
    }
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
  Subject subject(config, findings);
  check_interfaces(subject);
  resolve_transport(subject);
  resolve_engine(subject);
  check_sockets(subject);
  check_queues(subject);
  raise_num_bufs(subject);
  check_flows(subject);
  check_reorder(subject);
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
  const Node given = write_config(subject.config);
  const Node standard = default_config();
  for (const UnusedKey& unused : subject.traits.unused_keys)
    check_unused(subject, unused, unused.path, given, standard, subject.root);
}

}  // namespace daqiri::config
