// Sockets: transport and endpoints.
#include <array>
#include <optional>

#include "config/formats.h"
#include "config/rules.h"

namespace daqiri::config {
namespace {

/// An endpoint of the file, in the spelling that the file uses.
struct Endpoint {
  SocketEndpoint& value;
  Place at;
  Place port;
  bool has_scheme;

  Endpoint(SocketEndpoint& endpoint, const Place& socket, const std::string& side)
      : value(endpoint),
        at(socket[side + "_addr"]),
        port(socket[side + "_port"]),
        has_scheme(at.given() || !socket[side + "_ip"].given()) {
    if (!has_scheme) at = socket[side + "_ip"];
  }

  /// An address and a port must be given.
  void require(std::string_view role, std::string_view accepts, bool needs_port = true) const {
    if (!value.given() && !port.bad()) {
      at.error("required for ", role, ", but not given; accepts ", accepts);
    } else if (value.given() && value.port_ == 0 && needs_port) {
      (has_scheme ? at : port)
          .error("found no port, which ", role, " needs; accepts a port from 1 to 65535");
    }
  }
};

std::array<Endpoint, 2> endpoints(InterfaceConfig& interface, const Place& at) {
  const Place socket = at["socket_config"];
  return {Endpoint(interface.socket_.local_addr_, socket, "local"),
          Endpoint(interface.socket_.remote_addr_, socket, "remote")};
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
    if (remote.value.given() && server)
      remote.at.warning("has no effect: a server learns its peers from their traffic");
    if (remote.value.given() && !server && roce)
      remote.at.error(
          "found an address, but a RoCE client is told its peer when it connects; remove the key");
  }
  if (local.value.given() && remote.value.given() &&
      is_ipv6_address(local.value.host_) != is_ipv6_address(remote.value.host_))
    remote.at.error("found ", quoted(remote.value.host_), ", while ", local.at.path(), " is ",
                    quoted(local.value.host_), "; accepts two IPv4 or two IPv6 addresses");
  constexpr std::uint32_t LARGEST_DATAGRAM = 65507;
  if (protocol == SocketProtocol::UDP && socket.max_payload_size_ > LARGEST_DATAGRAM)
    at["socket_config"]["max_payload_size"].warning(
        "found ", socket.max_payload_size_, "; a datagram carries at most ", LARGEST_DATAGRAM,
        " bytes, longer ones cannot be sent");
  if (!subject.transport_known) return;
  if (roce && !is_ip_address(interface.address_))
    at["address"].error("found ", quoted(interface.address_), "; accepts ", ip_form.accepts,
                        " of the RoCE port");
  if (interface.has_roce_ && !roce)
    at["roce_config"].error("found beside ", text_of(SCHEMES, protocol),
                            ":// endpoints; accepts it beside roce:// endpoints");
}

}  // namespace

void resolve_transport(Subject& subject) {
  CommonConfig& common = subject.config.common_;
  if (!subject.sockets()) return;

  std::optional<SocketProtocol> transport;
  std::string decided_by;
  std::vector<Endpoint> without_scheme;
  for (auto& [interface, at] : subject.interfaces()) {
    for (const Endpoint& endpoint : endpoints(interface, at)) {
      const SocketProtocol protocol = endpoint.value.protocol_;
      if (!endpoint.value.given() || endpoint.at.bad()) continue;
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
  if (!transport && common.engine == "ibverbs") transport = SocketProtocol::ROCE;
  // A file with a protocol key has been told about the schemes.
  if (!transport && !subject.root["protocol"].bad()) {
    for (const Endpoint& endpoint : without_scheme)
      endpoint.at.error("found an address without a transport; accepts ",
                        endpoint.at.path().ends_with("local_ip") ? "local" : "remote",
                        "_addr: udp://ip:port or tcp://ip:port");
  }
  const bool roce = std::ranges::any_of(subject.config.ifs_, &InterfaceConfig::has_roce_);
  subject.transport_known = transport.has_value();
  common.protocol = transport.value_or(roce ? SocketProtocol::ROCE : SocketProtocol::UDP);
  for (const Endpoint& endpoint : without_scheme) endpoint.value.protocol_ = common.protocol;
}

void check_socket(const Subject& subject, InterfaceConfig& interface, const Place& at) {
  // An engine of the program's own knows what addresses it needs.
  if (subject.config.common_.engine_type == EngineType::OTHER) return;
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
      key.error("found beside stream_type: raw; accepts it beside stream_type: socket");
  }
}

}  // namespace daqiri::config
