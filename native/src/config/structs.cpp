// Configurations built in code: handles values that structs can have, but files cannot.
#include <charconv>
#include <optional>
#include <utility>

#include "config/rules.h"
#include "config/schema.h"
#include "daqiri/config.h"

namespace daqiri {
namespace {

using config::concat;
using config::Findings;
using config::Place;

bool names_engine(const CommonConfig& common) {
  return common.engine_type != EngineType::DEFAULT && common.engine_type != EngineType::UNKNOWN &&
         !common.engine_inferred_;
}

/// The first endpoint with a scheme: its path and the scheme.
std::optional<std::pair<std::string, SocketProtocol>> first_scheme(const NetworkConfig& config) {
  for (std::size_t i = 0; i < config.ifs_.size(); ++i) {
    const SocketConfig& socket = config.ifs_[i].socket_;
    for (const auto& [key, address] : {std::pair("local_addr", &socket.local_addr_),
                                       std::pair("remote_addr", &socket.remote_addr_)}) {
      config::Endpoint endpoint;
      if (config::read_endpoint(*address, endpoint).empty())
        return std::pair(concat("interfaces[", i, "].socket_config.", key), endpoint.protocol);
    }
  }
  return std::nullopt;
}

/// Sets fields that follow from others.
void complete(NetworkConfig& config) {
  CommonConfig& common = config.common_;
  if (common.engine == EngineType::DEFAULT && names_engine(common))
    common.engine = common.engine_type;
  for (auto& [name, region] : config.mrs_) {
    if (region.name_.empty()) region.name_ = name;
  }
  if (common.protocol == SocketProtocol::INVALID || first_scheme(config)) return;
  for (InterfaceConfig& interface : config.ifs_) {
    const auto add_scheme = [&](std::string& address, const std::string& ip, std::uint16_t port) {
      if (address.empty() && !ip.empty() && port != 0)
        address = config::write_endpoint({common.protocol, ip, port});
    };
    SocketConfig& socket = interface.socket_;
    add_scheme(socket.local_addr_, socket.local_ip_, socket.local_port_);
    add_scheme(socket.remote_addr_, socket.remote_ip_, socket.remote_port_);
  }
}

void check_engine(const CommonConfig& common, const Place& at) {
  if (names_engine(common) && !config::same_engine(common.engine, common.engine_type))
    at.error("found ", quoted(engine_type_to_string(common.engine)), " with engine_type ",
             quoted(engine_type_to_string(common.engine_type)),
             "; accepts the same engine in both, or EngineType::DEFAULT in one");
}

void check_protocol(const NetworkConfig& config, const Place& at) {
  const CommonConfig& common = config.common_;
  const auto first = first_scheme(config);
  // UDP is the default, so it may not have been set.
  if (common.stream_type != StreamType::SOCKET || common.protocol == SocketProtocol::UDP || !first)
    return;
  const auto& [where, scheme] = *first;
  if (common.protocol != scheme && common.protocol != SocketProtocol::INVALID)
    at.error("found ", quoted(socket_protocol_to_string(common.protocol)), ", while ", where,
             " has scheme ", quoted(socket_protocol_to_string(scheme)),
             "; accepts one transport in a configuration");
}

void check_matches(const std::vector<FlowConfig>& flows, const Place& list) {
  for (const auto& [flow, at] : config::placed(flows, list)) {
    const int type = static_cast<int>(flow.match_.type_);
    if (type < static_cast<int>(FlowMatchType::IPV4_UDP) ||
        type > static_cast<int>(FlowMatchType::ECPRI))
      at["match"]["type"].error("found ", type, "; accepts IPV4_UDP, FLEX_ITEM or ECPRI");
  }
}

void check(const NetworkConfig& config, Findings& findings) {
  const Place root(findings);
  check_engine(config.common_, root["engine"]);
  check_protocol(config, root["protocol"]);
  for (const auto& [name, region] : config.mrs_) {
    if (region.name_ != name)
      root["memory_regions"].error("found a region with name_ ", quoted(region.name_), " at mrs_[",
                                   quoted(name), "]; accepts the same name");
  }
  for (const auto& [interface, at] : config::placed(config.ifs_, root["interfaces"])) {
    check_matches(interface.rx_.flows_, at["rx"]["flows"]);
    check_matches(interface.tx_.flows_, at["tx"]["flows"]);
  }
}

/// Replaces numbers of memory regions in paths by names, because structs have them by name.
void name_regions(const NetworkConfig& config, ConfigReport& report) {
  constexpr std::string_view LIST = "memory_regions[";
  const auto regions = memory_regions(config);
  for (ConfigProblem& problem : report.problems_) {
    if (!problem.path_.starts_with(LIST)) continue;
    const std::size_t end = problem.path_.find(']');
    std::size_t number = regions.size();
    std::from_chars(problem.path_.data() + LIST.size(), problem.path_.data() + end, number);
    if (number < regions.size())
      problem.path_.replace(LIST.size(), end - LIST.size(), quoted(regions[number]->name_));
  }
}

}  // namespace

ConfigReport validate_config(NetworkConfig& config) {
  NetworkConfig given = config;
  complete(given);
  Findings findings("<config>");
  check(given, findings);
  NetworkConfig checked;
  config::read_config(config::write_config(given), config::UnknownKeys::REFUSED, findings, checked);
  config::apply_rules(checked, findings);
  ConfigReport report = std::move(findings).report();
  name_regions(given, report);
  if (report.ok()) config = std::move(checked);
  return report;
}

}  // namespace daqiri
