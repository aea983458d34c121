// Sockets: transport and endpoints.
#include <algorithm>
#include <array>
#include <optional>

#include "config/formats.h"
#include "config/names.h"
#include "config/rules.h"

namespace daqiri::config {
namespace {

/// An endpoint of the file, in the spelling that the file uses.
struct Endpoint {
  SocketEndpoint* value;
  std::string path;
  bool has_scheme;
};

std::array<Endpoint, 2> endpoints(const Findings& findings, const std::string& path,
                                  SocketConfig& socket) {
  std::array<Endpoint, 2> result;
  std::size_t i = 0;
  for (auto* value : {&socket.local_addr_, &socket.remote_addr_}) {
    const std::string side = value == &socket.local_addr_ ? "local" : "remote";
    const bool legacy =
        findings.given(join(path, side + "_ip")) && !findings.given(join(path, side + "_addr"));
    result[i++] = {value, join(path, side + (legacy ? "_ip" : "_addr")), !legacy};
  }
  return result;
}

void check_interface(Subject& subject, const std::string& interface_path,
                     InterfaceConfig& interface) {
  Findings& findings = subject.findings;
  SocketConfig& socket = interface.socket_;
  const SocketProtocol protocol = subject.config.common_.protocol;
  const bool roce = protocol == SocketProtocol::ROCE;
  const bool server = socket.mode_ == SocketMode::SERVER;
  const std::string path = join(interface_path, "socket_config");
  const auto [local, remote] = endpoints(findings, path, socket);

  const auto require = [&](const Endpoint& endpoint, const std::string& role,
                           const std::string& accepts) {
    const std::string port =
        join(path, endpoint.value == &socket.local_addr_ ? "local_port" : "remote_port");
    if (!endpoint.value->given()) {
      if (findings.bad(port)) return;
      findings.error(endpoint.path, "required for " + role + ", but not given; accepts " + accepts);
    } else if (endpoint.value->port_ == 0 && !(roce && !server)) {
      findings.error(endpoint.has_scheme ? endpoint.path : port,
                     "found no port, which " + role + " needs; accepts a port from 1 to 65535");
    }
  };
  if (!findings.bad(join(path, "mode"))) {
    if (server) {
      require(local, "a server", "the address to listen at, such as udp://127.0.0.1:5000");
    } else if (roce) {
      require(local, "a RoCE client", "the address to send from, such as roce://10.0.0.1");
    } else {
      require(remote, "a client", "the address to send to, such as udp://127.0.0.1:5000");
    }
    if (remote.value->given() && server) {
      findings.warning(remote.path, "has no effect: a server learns its peers from their traffic");
    }
    if (remote.value->given() && !server && roce) {
      findings.error(
          remote.path,
          "found an address, but a RoCE client is told its peer when it connects; remove the key");
    }
  }
  if (local.value->given() && remote.value->given() &&
      is_ipv6_address(local.value->host_) != is_ipv6_address(remote.value->host_)) {
    findings.error(remote.path, "found " + quoted(remote.value->host_) + ", while " + local.path +
                                    " is " + quoted(local.value->host_) +
                                    "; accepts two IPv4 or two IPv6 addresses");
  }
  constexpr std::uint32_t LARGEST_DATAGRAM = 65507;
  if (protocol == SocketProtocol::UDP && socket.max_payload_size_ > LARGEST_DATAGRAM) {
    findings.warning(join(path, "max_payload_size"),
                     "found " + std::to_string(socket.max_payload_size_) +
                         "; a datagram carries at most 65507 bytes, longer "
                         "ones cannot be sent");
  }
  if (!subject.transport_known) return;
  if (roce && !findings.bad(join(interface_path, "address")) &&
      !is_ip_address(interface.address_)) {
    findings.error(join(interface_path, "address"), "found " + quoted(interface.address_) +
                                                        "; accepts " + std::string(IP_FORM) +
                                                        " of the RoCE port");
  }
  if (interface.has_roce_ && !roce) {
    findings.error(join(interface_path, "roce_config"),
                   "found beside " + text_of(SCHEMES, protocol) +
                       ":// endpoints; accepts it beside roce:// endpoints");
  }
}

}  // namespace

void resolve_transport(Subject& subject) {
  Findings& findings = subject.findings;
  CommonConfig& common = subject.config.common_;
  if (subject.raw() || findings.bad("stream_type")) return;

  std::optional<SocketProtocol> transport;
  std::string decided_by;
  std::vector<Endpoint> without_scheme;
  for (std::size_t i = 0; i < subject.config.ifs_.size(); ++i) {
    const std::string path = join(element("", "interfaces", i), "socket_config");
    for (const Endpoint& endpoint : endpoints(findings, path, subject.config.ifs_[i].socket_)) {
      if (!endpoint.value->given() || findings.bad(endpoint.path)) continue;
      if (!endpoint.has_scheme) {
        without_scheme.push_back(endpoint);
      } else if (!transport) {
        transport = endpoint.value->protocol_;
        decided_by = endpoint.path;
      } else if (endpoint.value->protocol_ != *transport) {
        findings.error(endpoint.path,
                       "found scheme '" + text_of(SCHEMES, endpoint.value->protocol_) +
                           "', while " + decided_by + " has '" + text_of(SCHEMES, *transport) +
                           "'; accepts one transport in a configuration");
      }
    }
  }
  if (!transport && common.engine == "ibverbs") transport = SocketProtocol::ROCE;
  // A file with a protocol key has been told about the schemes.
  if (!transport && !findings.bad("protocol")) {
    for (const Endpoint& endpoint : without_scheme) {
      const bool local = endpoint.path.ends_with("local_ip");
      findings.error(endpoint.path, std::string("found an address without a transport; accepts ") +
                                        (local ? "local_addr" : "remote_addr") +
                                        ": udp://ip:port or tcp://ip:port");
    }
  }
  const auto& interfaces = subject.config.ifs_;
  const bool roce = std::any_of(interfaces.begin(), interfaces.end(),
                                [](const auto& each) { return each.has_roce_; });
  subject.transport_known = transport.has_value();
  common.protocol = transport.value_or(roce ? SocketProtocol::ROCE : SocketProtocol::UDP);
  for (const Endpoint& endpoint : without_scheme) endpoint.value->protocol_ = common.protocol;
}

void check_sockets(Subject& subject) {
  Findings& findings = subject.findings;
  if (findings.bad("stream_type")) return;
  for (std::size_t i = 0; i < subject.config.ifs_.size(); ++i) {
    InterfaceConfig& interface = subject.config.ifs_[i];
    const std::string path = element("", "interfaces", i);
    const std::string socket_path = join(path, "socket_config");
    if (subject.raw()) {
      for (const char* key : {"socket_config", "roce_config"}) {
        if (findings.given(join(path, key))) {
          findings.error(join(path, key),
                         "found beside stream_type: raw; accepts it beside stream_type: socket");
        }
      }
    } else if (!interface.has_socket_) {
      findings.error(socket_path,
                     "required for stream_type: socket, but not given; accepts a map with mode, "
                     "local_addr and "
                     "remote_addr");
    } else if (!findings.bad(socket_path)) {
      check_interface(subject, path, interface);
    }
  }
}

}  // namespace daqiri::config
