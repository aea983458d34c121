#include "session/flow_checks.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "daqiri/error.h"
#include "engine/registry.h"

namespace daqiri {

namespace {

using steering::Addition;

/// A configuration with one port's receive queues, for checking flows.
NetworkConfig config_around(const NetworkConfig& config, const Port& port) {
  NetworkConfig around = config;
  around.ifs_ = {port.config};
  around.reorder_configs_.clear();
  InterfaceConfig& interface = around.ifs_.front();
  interface.tx_ = {};
  interface.rx_.reorder_configs_.clear();
  interface.rx_.flows_.clear();
  return around;
}

void put_flows(NetworkConfig& config, std::span<Addition* const> additions) {
  std::vector<FlowConfig>& flows = config.ifs_.front().rx_.flows_;
  flows.clear();
  for (const Addition* addition : additions) flows.push_back(addition->flow);
}

std::vector<Addition*> good_ones(std::span<Addition> additions) {
  std::vector<Addition*> good;
  for (Addition& addition : additions)
    if (!addition.refused) good.push_back(&addition);
  return good;
}

void refuse(Addition& addition, const Port& port, const std::string& why) {
  std::string text = "interface '" + port.config.name_ + "': flow '" + addition.flow.name_ + "': ";
  addition.refused.emplace(Status::INVALID_PARAMETER, text.append(why));
}

/// Assigns each error to the flow that it names; assigns errors that name no flow to all.
void share_out(const ConfigReport& report, const Port& port, std::span<Addition* const> checked) {
  constexpr std::string_view FLOWS = "interfaces[0].rx.flows[";
  for (const ConfigProblem& problem : report.problems_) {
    if (problem.severity_ != ConfigProblem::Severity::ERROR) continue;
    std::size_t number = checked.size();
    std::string_view key = problem.path_;
    if (key.starts_with(FLOWS)) {
      key.remove_prefix(FLOWS.size());
      std::from_chars(key.data(), key.data() + key.size(), number);
      key.remove_prefix(std::min(key.find(']') + 1, key.size()));
      if (key.starts_with('.')) key.remove_prefix(1);
    }
    const std::string why = std::string(key) + (key.empty() ? "" : ": ") + problem.message_;
    for (std::size_t i = 0; i < checked.size(); ++i) {
      if ((number >= checked.size() || i == number) && !checked[i]->refused)
        refuse(*checked[i], port, why);
    }
  }
}

/// Rejects the flows that use a feature which the engine does not have. `config`: that of their
/// port.
void reject_unsupported(NetworkConfig config, const EngineTraits& traits,
                        std::span<Addition> additions) {
  const auto find = [&](std::span<Addition* const> some) {
    put_flows(config, some);
    return find_unsupported(config, traits);
  };
  std::vector<Addition*> good = good_ones(additions);
  if (find(good).empty()) return;
  for (Addition*& addition : good) {
    const std::vector<Error> found = find(std::span(&addition, 1));
    if (!found.empty()) addition->refused.emplace(joined(found));
  }
}

}  // namespace

void check_additions(const NetworkConfig& config, const EngineTraits& traits, const Port& port,
                     std::span<Addition> additions) {
  const NetworkConfig around = config_around(config, port);
  // After errors, repeat with the remaining flows.
  for (std::vector<Addition*> checked = good_ones(additions); !checked.empty();
       checked = good_ones(additions)) {
    NetworkConfig with = around;
    put_flows(with, checked);
    FlowId number = 0;
    for (FlowConfig& flow : with.ifs_.front().rx_.flows_) {
      flow.id_ = ++number;
      flow.name_ = std::to_string(number);
    }
    const ConfigReport report = validate_config(with);
    if (!report.ok()) {
      share_out(report, port, checked);
      continue;
    }
    const std::vector<FlowConfig>& flows = with.ifs_.front().rx_.flows_;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      checked[i]->flow.action_ = flows[i].action_;
      checked[i]->flow.actions_ = flows[i].actions_;
      checked[i]->flow.match_ = flows[i].match_;
    }
    break;
  }
  reject_unsupported(around, traits, additions);
}

}  // namespace daqiri
