// Rules for interfaces, sockets, the engine, and keys that the engine does not use.
#include "config/rules.h"

#include <array>
#include <optional>
#include <regex>
#include <set>

#include <net/if.h>

#include "config/schema.h"
#include "daqiri/error.h"
#include "engine/modules.h"

namespace daqiri::config {
namespace {

void check_interfaces(const Subject& subject) {
  auto& interfaces = subject.config.ifs_;
  const Place list = subject.root["interfaces"];
  constexpr std::size_t MOST_PORTS = 65536;
  if (interfaces.empty()) list.error("found an empty list; accepts at least one interface");
  if (interfaces.size() > MOST_PORTS)
    list.error("found ", interfaces.size(), " interfaces; accepts at most ", MOST_PORTS);
  check_unique<std::string>(subject.root, "interfaces", "name", interfaces,
                            &InterfaceConfig::name_);
  std::uint16_t port = 0;
  for (auto& [interface, at] : subject.interfaces()) {
    interface.port_id_ = port++;
    if (!at.bad() && !at["rx"].given() && !at["tx"].given())
      at.warning("has neither rx nor tx: nothing is received or sent here");
  }
  if (subject.config.common_.loopback_drops_ && !subject.in_memory())
    subject.root["loopback_drops"].warning(
        "found true, which has no effect without loopback: sw; remove the key");
  if (subject.in_memory() && subject.sockets())
    subject.root["loopback"].error(
        "found 'sw' with stream_type: socket; accepts it with stream_type: raw (for sockets, use "
        "127.0.0.1)");
}

/// An endpoint in the configuration, with the keys that the file uses for it.
struct GivenEndpoint {
  std::string& address;
  std::string& ip;
  std::uint16_t& port_number;
  Place at;
  Place port;
  bool has_scheme;

  GivenEndpoint(SocketConfig& config, const Place& socket, bool local)
      : address(local ? config.local_addr_ : config.remote_addr_),
        ip(local ? config.local_ip_ : config.remote_ip_),
        port_number(local ? config.local_port_ : config.remote_port_),
        at(socket[local ? "local_addr" : "remote_addr"]),
        port(socket[local ? "local_port" : "remote_port"]),
        has_scheme(at.given() || !socket[local ? "local_ip" : "remote_ip"].given()) {
    if (!has_scheme) at = socket[local ? "local_ip" : "remote_ip"];
  }

  [[nodiscard]] bool given() const { return !ip.empty(); }
  /// INVALID without a scheme.
  [[nodiscard]] SocketProtocol protocol() const {
    Endpoint parts;
    read_endpoint(address, parts);
    return parts.protocol;
  }
  /// Report an error unless an address and a port are given.
  void require(std::string_view role, std::string_view accepts, bool needs_port = true) const {
    if (!given() && !port.bad()) {
      at.error("required for ", role, ", but not given; accepts ", accepts);
    } else if (given() && port_number == 0 && needs_port) {
      (has_scheme ? at : port)
          .error("found no port, which ", role, " needs; accepts a port from 1 to 65535");
    }
  }
};

std::array<GivenEndpoint, 2> endpoints(InterfaceConfig& interface, const Place& at) {
  const Place socket = at["socket_config"];
  return {GivenEndpoint(interface.socket_, socket, true),
          GivenEndpoint(interface.socket_, socket, false)};
}

/// Resolves the transport of a socket stream: sets CommonConfig::protocol and the scheme of
/// endpoints without one.
void resolve_transport(Subject& subject) {
  CommonConfig& common = subject.config.common_;
  if (!subject.sockets()) return;

  std::optional<SocketProtocol> transport;
  std::string decided_by;
  std::vector<GivenEndpoint> without_scheme;
  for (auto& [interface, at] : subject.interfaces()) {
    for (const GivenEndpoint& endpoint : endpoints(interface, at)) {
      const SocketProtocol protocol = endpoint.protocol();
      if (!endpoint.given() || endpoint.at.bad()) continue;
      if (!endpoint.has_scheme) {
        without_scheme.push_back(endpoint);
      } else if (!transport) {
        transport = protocol;
        decided_by = endpoint.at.path();
      } else if (protocol != *transport) {
        endpoint.at.error("found scheme '", text_of(SCHEMES, protocol), "', while ", decided_by,
                          " has '", text_of(SCHEMES, *transport),
                          "'; accepts one transport in a configuration");
      }
    }
  }
  const auto named = traits_named(engine_word(common));
  if (!transport && named && named->transports.size() == 1) transport = named->transports.front();
  // For a file with the former key `protocol`, an error about schemes was already reported.
  if (!transport && !subject.root["protocol"].bad()) {
    for (const GivenEndpoint& endpoint : without_scheme)
      endpoint.at.error("found an address without a transport; accepts ",
                        endpoint.at.path().ends_with("local_ip") ? "local" : "remote",
                        "_addr: udp://ip:port or tcp://ip:port");
  }
  const bool roce = std::ranges::any_of(subject.config.ifs_, &InterfaceConfig::has_roce_);
  subject.transport_known = transport.has_value();
  common.protocol = transport.value_or(roce ? SocketProtocol::ROCE : SocketProtocol::UDP);
  for (const GivenEndpoint& endpoint : without_scheme)
    endpoint.address = write_endpoint({common.protocol, endpoint.ip, endpoint.port_number});
}

bool is_pci_address(std::string_view text) {
  static const std::regex pci("([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\\.[0-7]");
  return text.size() <= 16 && std::regex_match(text.begin(), text.end(), pci);
}

/// "net_" and a driver's name with a number, then arguments: "net_af_packet0,iface=eth1".
bool is_virtual_device(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(','));
  const auto of_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return name.starts_with("net_") && name.size() > 4 && std::ranges::all_of(name, of_name) &&
         !text.ends_with(',');
}

bool is_interface_name(std::string_view text) {
  const auto forbidden = [](char c) {
    return c == '/' || c == ':' || c == '<' || c == '>' || static_cast<unsigned char>(c) <= ' ';
  };
  return !text.empty() && text.size() < IF_NAMESIZE && text != "." && text != ".." &&
         !is_ip_address(text) && std::ranges::none_of(text, forbidden);
}

bool accepts(const EngineTraits& engine, AddressForm form) {
  const AddressForm accepted = engine.addresses;
  return accepted == form || accepted == AddressForm::PCI_OR_INTERFACE_NAME ||
         accepted == AddressForm::OWN;
}

bool has_transport(const EngineTraits& engine, SocketProtocol transport) {
  return std::ranges::find(engine.transports, transport) != engine.transports.end();
}

/// The first documented engine for which this holds; only those are inferred.
template <class Holds>
EngineTraits documented_engine(Holds holds) {
  const std::vector<EngineTraits> found = documented_engines(holds);
  return found.empty() ? EngineTraits{} : found.front();
}

/// Engine for the addresses of a raw stream. Without a name if it is inferred and one of them is
/// wrong.
EngineTraits engine_of_addresses(const Subject& subject, const EngineTraits& named) {
  constexpr std::string_view PCI = "a PCI address such as 0000:05:00.0";
  constexpr std::string_view LINUX = "a Linux interface name";
  constexpr std::string_view VIRTUAL = " or a virtual device such as net_tap0,iface=dtap0";
  const auto engine_with = [](AddressForm form) {
    return documented_engine([&](const EngineTraits& each) { return each.addresses == form; });
  };
  const EngineTraits by_pci = engine_with(AddressForm::PCI_OR_VIRTUAL_DEVICE);
  const EngineTraits by_name = engine_with(AddressForm::INTERFACE_NAME);
  const bool is_named = !named.name.empty();
  EngineTraits inferred;
  std::string inferred_from;
  bool all_good = true;
  for (const auto& [interface, place] : subject.interfaces()) {
    const Place at = place["address"];
    const std::string found = "found " + quoted(interface.address_);
    const bool pci = is_pci_address(interface.address_);
    // Some are interface names, too.
    if (named.addresses == by_pci.addresses && is_virtual_device(interface.address_)) continue;
    const bool wire = interface.address_ == "loopback";
    const EngineTraits& wanted = pci ? by_pci : by_name;
    if (wire && subject.root["loopback"].bad()) {
      all_good = false;
    } else if (wire || (!pci && !is_interface_name(interface.address_))) {
      at.error(found, wire ? ", the in-memory wire, without loopback: sw" : "", "; accepts ", PCI,
               " or ", LINUX);
    } else if (is_named && !accepts(named, wanted.addresses)) {
      at.error(found, " with engine: ", named.name, "; accepts ", pci ? LINUX : PCI,
               pci ? "" : VIRTUAL, " (engine: ", wanted.name, " accepts ", pci ? PCI : LINUX, ")");
    } else if (inferred.name.empty()) {
      inferred = wanted;
      inferred_from = at.path();
    } else if (wanted.name != inferred.name && !is_named) {
      at.error(found, ", for engine ", wanted.name, ", while ", inferred_from, " is for engine ",
               inferred.name, "; accepts addresses of one kind, or engine: ",
               engine_with(AddressForm::PCI_OR_INTERFACE_NAME).name);
    }
    all_good = all_good && !at.bad();
  }
  if (is_named) return named;
  return all_good ? inferred : EngineTraits{};
}

/// Engine for the endpoints of a socket stream. Without a name if the configuration names another.
EngineTraits engine_of_endpoints(const Subject& subject, const EngineTraits& named,
                                 const Place& at) {
  const SocketProtocol transport = subject.config.common_.protocol;
  EngineTraits inferred =
      documented_engine([&](const EngineTraits& each) { return has_transport(each, transport); });
  // An engine of sockets leaves other transports to the engine that has them.
  if (subject.transport_known && !named.name.empty() && named.raw &&
      !has_transport(named, transport))
    at.error("found ", quoted(named.name), " with stream_type: socket and ",
             text_of(SCHEMES, transport), ":// endpoints; accepts ", quoted(inferred.name));
  return at.bad() ? EngineTraits{} : inferred;
}

/// Name of the engine; empty: it is not known, because of an error.
std::string_view engine_of(const Subject& subject, const Place& at) {
  const EngineTraits named =
      traits_named(engine_word(subject.config.common_)).value_or(EngineTraits{});
  if (!named.name.empty() && find_name(ENGINES, named.name) == nullptr) return named.name;
  if (!subject.raw()) return engine_of_endpoints(subject, named, at).name;
  if (!named.name.empty() && !named.raw) {
    at.error("found ", quoted(named.name), " with stream_type: raw; accepts ",
             alternatives(documented_engines([](const EngineTraits& each) { return each.raw; })));
    return {};
  }
  if (subject.in_memory()) return named.name.empty() ? LOOPBACK_ENGINE : named.name;
  return engine_of_addresses(subject, named).name;
}

/// Sets CommonConfig::engine_type and the engine's traits.
void resolve_engine(Subject& subject) {
  CommonConfig& common = subject.config.common_;
  const Place at = subject.root["engine"];
  const std::string word = engine_word(common);
  common.engine_type = EngineType::DEFAULT;
  common.engine_inferred_ = word.empty();
  if (subject.root["stream_type"].bad() || at.bad()) return;
  const std::string_view name = engine_of(subject, at);
  if (name.empty()) return;
  // Of an inferred engine; what is wrong with its module is reported when it is opened.
  static_cast<void>(load_engine(name));
  common.engine_type = engine_type_of(name, common);
  subject.traits = traits_of(subject.config);
  if (common.engine_type == EngineType::OTHER && subject.traits.name != word)
    at.error("found ", quoted(word),
             ", an engine that does not accept this configuration; accepts ",
             alternatives(ENGINES));
}

void check_endpoints(const Subject& subject, InterfaceConfig& interface, const Place& at) {
  SocketConfig& socket = interface.socket_;
  const SocketProtocol protocol = subject.config.common_.protocol;
  const bool roce = protocol == SocketProtocol::ROCE;
  const bool server = socket.mode_ == SocketMode::SERVER;
  const auto [local, remote] = endpoints(interface, at);

  if (!at["socket_config"]["mode"].bad()) {
    if (server) {
      local.require("a server", "the address to listen at, such as udp://127.0.0.1:5000");
    } else if (roce) {
      local.require("a RoCE client", "the address to send from, such as roce://10.0.0.1", false);
    } else {
      remote.require("a client", "the address to send to, such as udp://127.0.0.1:5000");
    }
    if (remote.given() && server)
      remote.at.warning("has no effect: a server learns its peers from their traffic");
    if (remote.given() && !server && roce)
      remote.at.error(
          "found an address, but a RoCE client gets its peer when it connects; remove the key");
  }
  if (local.given() && remote.given() && is_ipv6_address(local.ip) != is_ipv6_address(remote.ip))
    remote.at.error("found ", quoted(remote.ip), ", while ", local.at.path(), " is ",
                    quoted(local.ip), "; accepts two IPv4 or two IPv6 addresses");
  constexpr std::uint32_t LARGEST_DATAGRAM = 65507;
  if (protocol == SocketProtocol::UDP && socket.max_payload_size_ > LARGEST_DATAGRAM)
    at["socket_config"]["max_payload_size"].warning(
        "found ", socket.max_payload_size_, "; a datagram carries at most ", LARGEST_DATAGRAM,
        " bytes, longer ones cannot be sent");
  if (!subject.transport_known) return;
  if (roce) {
    const Name* transport = find_name(TRANSPORT_MODES, interface.roce_.transport_mode_);
    interface.rdma_ = {server ? RDMAMode::SERVER : RDMAMode::CLIENT,
                       transport == nullptr ? RDMATransportMode::INVALID
                                            : static_cast<RDMATransportMode>(transport->value),
                       socket.local_port_};
  }
  if (roce && !is_ip_address(interface.address_))
    at["address"].error("found ", quoted(interface.address_), "; accepts ", ip_form.accepts,
                        " of the RoCE port");
  if (interface.has_roce_ && !roce)
    at["roce_config"].error("found with ", text_of(SCHEMES, protocol),
                            ":// endpoints; accepts it with roce:// endpoints");
}

void check_socket(const Subject& subject, InterfaceConfig& interface, const Place& at) {
  if (subject.engine_known() && subject.traits.addresses == AddressForm::OWN) return;
  const Place socket = at["socket_config"];
  if (subject.sockets() && !interface.has_socket_) {
    socket.error(
        "required for stream_type: socket, but not given; accepts a map with mode, local_addr "
        "and remote_addr");
  } else if (subject.sockets() && !socket.bad()) {
    check_endpoints(subject, interface, at);
  }
  for (const Place& key : {socket, at["roce_config"]}) {
    if (subject.raw() && !subject.root["stream_type"].bad() && key.given())
      key.error("found with stream_type: raw; accepts it with stream_type: socket");
  }
}

/// Sets CommonConfig::dir.
void resolve_direction(Subject& subject) {
  const auto [rx, tx] = get_enabled_directions(subject.config);
  subject.config.common_.dir = rx == tx ? Direction::TX_RX : rx ? Direction::RX : Direction::TX;
}

/// Call for a configuration without errors.
void check_unused_regions(const Subject& subject) {
  // Each operation names its region.
  if (subject.roce()) return;
  std::set<std::string_view> used;
  for (const InterfaceConfig& interface : subject.config.ifs_) {
    for (const ReorderConfig& plan : interface.rx_.reorder_configs_)
      used.insert(plan.memory_region_);
  }
  for (const ReorderConfig& plan : subject.config.reorder_configs_)
    used.insert(plan.memory_region_);
  for (const auto& [name, region] : subject.config.mrs_) {
    if (!used.contains(name) && !holds_packets(subject.config, name))
      subject.root["memory_regions"][region.position_].warning(
          "is used by no queue and no reorder config, but its memory is allocated; remove it");
  }
}

/// Text of a value for comparison: a scalar, or a list of scalars.
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

/// Warns of values that the engine does not use.
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
    // A list whose words are all wrong is empty, and the words were reported.
    if (found == standard[path] || found == "[]") return;
    constexpr std::size_t NUMBER = std::string_view("interfaces[").size();
    if (unused->when == nullptr ||
        unused->when(subject.config.ifs_[std::stoul(at.path().substr(NUMBER))]))
      at.warning("found ", found, ", which has no effect on engine '", subject.traits.name, "'; ",
                 unused->instead);
  };
  for_each_value(write_config(subject.config), subject.root, {}, check);
}

}  // namespace

std::string alternatives(const std::vector<EngineTraits>& engines) {
  std::vector<Name> names;
  names.reserve(engines.size());
  for (const EngineTraits& each : engines) names.emplace_back(each.name, 0);
  return alternatives(names);
}

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
  resolve_direction(subject);
  for (auto& [interface, at] : subject.interfaces()) {
    check_socket(subject, interface, at);
    check_queues_and_flows(subject, interface, at);
    check_reorder(subject, interface, at);
  }
  check_joint_reorder(subject);
  raise_num_bufs(subject);
  check_unused(subject);
  if (findings.good()) check_unused_regions(subject);
}

}  // namespace daqiri::config
