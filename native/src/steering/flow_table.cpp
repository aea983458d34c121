#include "steering/flow_table.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace daqiri::steering {

namespace {

/// Number of free positions to keep before one is reused.
constexpr std::size_t RESTING = 1024;

std::string named(const FlowConfig& flow) {
  return "flow '" + flow.name_ + "' (id " + std::to_string(flow.id_) + ")";
}

const char* describe(FlowMatchType type) {
  if (type == FlowMatchType::IPV4_UDP) return "UDP";
  return type == FlowMatchType::FLEX_ITEM ? "flex item" : "eCPRI";
}

bool same_work(const FlowConfig& one, const FlowConfig& other) {
  return one.match_ == other.match_ && one.action_ == other.action_ &&
         one.actions_ == other.actions_;
}

/// Throws an Error that says why the engine refuses flows.
[[noreturn]] void refuse_all(const std::vector<std::pair<std::size_t, Error>>& refused) {
  std::string text;
  for (const auto& [flow, error] : refused)
    text += (text.empty() ? "" : "\n") + std::string(error.what());
  throw Error(refused.front().second.status(), text);
}

FlowSnapshot difference(FlowSnapshot counts, const FlowSnapshot& before) {
  counts.packets -= before.packets;
  counts.bytes -= before.bytes;
  return counts;
}

}  // namespace

FlowTable::FlowTable(const InterfaceConfig& config, Steering& steering)
    : config_(config), steering_(steering) {
  configure(config.rx_.flows_);
}

void FlowTable::attach(InstallFlows install) {
  const std::lock_guard one(changing_);
  install_ = std::move(install);
  Flows next;
  {
    // None of them is installed yet.
    const std::lock_guard lock(mutex_);
    next.swap(flows_);
  }
  const auto refused = this->install(next);
  use(std::move(next), positions_);
  if (!refused.empty()) refuse_all(refused);
}

void FlowTable::detach() noexcept {
  const std::lock_guard one(changing_);
  install_ = nullptr;
}

std::vector<std::pair<std::size_t, Error>> FlowTable::install(Flows& next) const {
  if (!install_) return {};
  FlowUpdate update{.flows = next};
  std::unordered_map<std::uint64_t, const InstalledFlow*> before;
  for (const InstalledFlow& flow : flows_) before.emplace(flow.key, &flow);
  for (std::size_t i = 0; i < next.size(); ++i) {
    const auto found = before.find(next[i].key);
    const bool same = found != before.end() && same_work(*found->second->config, *next[i].config);
    if (same) {
      before.erase(found);
    } else {
      next[i].offload = {};
      next[i].offload_reason.clear();
      update.added.push_back(i);
    }
  }
  for (const InstalledFlow& flow : flows_)
    if (before.contains(flow.key)) update.removed.push_back(flow);
  install_(update);
  for (auto& [flow, error] : update.refused) {
    error = Error(error.status(), "interface '" + config_.name_ +
                                      "': " + named(*next[flow].config) + ": " + error.what());
  }
  return std::move(update.refused);
}

void FlowTable::take_position(InstalledFlow& flow, Positions& positions) const {
  if (positions.next < NO_FLOW && positions.free.size() <= RESTING) {
    flow.position = static_cast<std::uint16_t>(positions.next++);
  } else {
    flow.position = positions.free.front();
    positions.free.pop_front();
    flow.before = steering_.counts(flow.position);
  }
  flow.key = positions.next_key++;
}

std::shared_ptr<const Program> FlowTable::compile(const Flows& flows,
                                                  std::vector<Unreachable>* unreachable) const {
  std::vector<Ranked> ranked;
  ranked.reserve(flows.size());
  for (const InstalledFlow& flow : flows) ranked.push_back({flow.config.get(), flow.position});
  return std::make_shared<const Program>(config_, ranked, unreachable);
}

void FlowTable::use(Flows flows, Positions positions) {
  const std::lock_guard lock(mutex_);
  flows_.swap(flows);
  positions_ = std::move(positions);
}

void FlowTable::refuse_taken_names(const Flows& flows, std::span<Addition> added) const {
  if (std::ranges::none_of(added, &Addition::own_name)) return;
  std::unordered_map<std::string_view, FlowId> taken;
  for (const InstalledFlow& flow : flows) taken.emplace(flow.config->name_, flow.config->id_);
  for (Addition& addition : added) {
    const std::string& name = addition.flow.name_;
    const auto [other, is_new] = taken.emplace(name, addition.flow.id_);
    if (is_new || addition.refused || !addition.own_name) continue;
    addition.refused.emplace(
        Status::INVALID_PARAMETER,
        "interface '" + config_.name_ + "': a flow to add has the name of flow '" + name + "' (" +
            std::to_string(other->second) + "); names of flows are unique on a port");
  }
}

void FlowTable::accept(Flows& flows, Positions& positions, std::span<Addition> added) const {
  const std::uint32_t capacity = config_.rx_.dynamic_flow_capacity_;
  auto num_added = static_cast<std::size_t>(std::ranges::count(flows, true, &InstalledFlow::added));
  Flows accepted;
  refuse_taken_names(flows, added);
  for (Addition& addition : added) {
    if (addition.refused) continue;
    const FlowConfig& flow = addition.flow;
    const auto refuse = [&](Status status, const std::string& why) {
      addition.refused.emplace(status, "interface '" + config_.name_ + "': " + named(flow) + why);
    };
    const InstalledFlow* other = !flows.empty()      ? &flows.front()
                                 : !accepted.empty() ? &accepted.front()
                                                     : nullptr;
    if (other != nullptr && other->config->match_.type_ != flow.match_.type_) {
      refuse(Status::INVALID_PARAMETER, std::string(" has a ") + describe(flow.match_.type_) +
                                            " match, while " + named(*other->config) + " has a " +
                                            describe(other->config->match_.type_) +
                                            " match; accepts one kind on an interface");
    } else if (capacity != 0 && num_added >= capacity) {
      refuse(Status::NO_SPACE_AVAILABLE,
             " exceeds the limit: dynamic_flow_capacity is " + std::to_string(capacity) +
                 ", and that many flows were added; delete one first, or raise it");
    } else if (flows.size() + accepted.size() + 1 >= NO_FLOW) {
      refuse(Status::NO_SPACE_AVAILABLE,
             " exceeds the limit: there are " + std::to_string(flows.size() + accepted.size()) +
                 " flows, and at most 65534 are accepted; delete one first");
    } else {
      InstalledFlow& entry = accepted.emplace_back();
      entry.config = std::make_shared<const FlowConfig>(flow);
      entry.added = true;
      take_position(entry, positions);
      addition.key = entry.key;
      ++num_added;
    }
  }
  std::ranges::reverse(accepted);
  flows.insert(flows.begin(), std::move_iterator(accepted.begin()),
               std::move_iterator(accepted.end()));
}

bool FlowTable::refuse_doubles(const Flows& flows, const std::vector<Unreachable>& unreachable,
                               std::span<Addition> added) const {
  std::unordered_map<FlowId, Addition*> by_id;
  for (Addition& addition : added) by_id.emplace(addition.flow.id_, &addition);
  bool none = true;
  for (const auto& [flow, taken_by] : unreachable) {
    const FlowConfig& older = *flows[flow].config;
    const FlowConfig& newer = *flows[taken_by].config;
    const auto found = by_id.find(newer.id_);
    if (!flows[flow].added || !flows[taken_by].added || found == by_id.end() ||
        !same_work(older, newer))
      continue;
    found->second->refused.emplace(
        Status::INVALID_PARAMETER,
        "interface '" + config_.name_ + "': " + named(newer) +
            " has the match and the actions of " + named(older) +
            ", which was added before; delete that one first, or leave this one out");
    none = false;
  }
  return none;
}

void FlowTable::change(std::span<const FlowId> removed, std::span<Addition> added, Whole whole) {
  const std::lock_guard one(changing_);
  Flows kept = flows_;
  Positions rest = positions_;
  const std::unordered_set<FlowId> going(removed.begin(), removed.end());
  std::erase_if(kept, [&](const InstalledFlow& flow) {
    const bool goes = flow.added && going.contains(flow.config->id_);
    if (goes) rest.free.push_back(flow.position);
    return goes;
  });
  for (;;) {
    Flows next = kept;
    Positions positions = rest;
    accept(next, positions, added);
    std::vector<Unreachable> unreachable;
    std::shared_ptr<const Program> program = compile(next, &unreachable);
    if (!refuse_doubles(next, unreachable, added)) continue;
    if (whole == Whole::ALL_OR_NOTHING &&
        std::ranges::any_of(added, [](const Addition& each) { return each.refused.has_value(); }))
      return;
    steering_.grow(*program);
    const auto refused = install(next);
    for (const auto& [flow, error] : refused) {
      // One that was refused before has a key that is used again.
      const InstalledFlow& refused_flow = next[flow];
      const auto addition = std::ranges::find_if(added, [&](const Addition& each) {
        return !each.refused && refused_flow.added && each.key == refused_flow.key;
      });
      // Not one of the change: repeating it without the flow would remove that.
      if (addition == added.end()) refuse_all(refused);
      addition->refused.emplace(error);
    }
    if (!refused.empty() && whole == Whole::ALL_OR_NOTHING) return;
    if (!refused.empty()) continue;
    steering_.publish(std::move(program));
    return use(std::move(next), std::move(positions));
  }
}

void FlowTable::require_acceptable(const std::vector<FlowConfig>& flows) const {
  const auto refuse = [&](Status status, const std::string& why) {
    throw Error(status, "interface '" + config_.name_ + "': " + why);
  };
  const Flows now = installed();
  const auto added = static_cast<std::size_t>(std::ranges::count(now, true, &InstalledFlow::added));
  if (flows.size() + added >= NO_FLOW) {
    refuse(Status::NO_SPACE_AVAILABLE,
           std::to_string(flows.size()) + " flows, in addition to " + std::to_string(added) +
               " that were added at run time; at most 65534 are accepted together");
  }
  if (added == 0 || flows.empty()) return;
  std::unordered_map<std::string_view, FlowId> taken;
  for (const InstalledFlow& flow : now)
    if (flow.added) taken.emplace(flow.config->name_, flow.config->id_);
  for (const FlowConfig& flow : flows) {
    const auto found = taken.find(flow.name_);
    if (found == taken.end()) continue;
    refuse(Status::INVALID_PARAMETER,
           named(flow) + " of the configuration has the name of flow '" + flow.name_ + "' (" +
               std::to_string(found->second) +
               "), which was added at run time; names of flows are unique on a port. Remove the "
               "added flow, or rename the other flow");
  }
  const FlowConfig& other = *now.front().config;
  if (other.match_.type_ == flows.front().match_.type_) return;
  refuse(Status::INVALID_PARAMETER,
         named(flows.front()) + " has a " + describe(flows.front().match_.type_) +
             " match, while " + named(other) + ", which was added at run time, has a " +
             describe(other.match_.type_) + " match; accepts one kind on an interface");
}

void FlowTable::configure(const std::vector<FlowConfig>& flows) {
  const std::lock_guard one(changing_);
  require_acceptable(flows);
  Flows next;
  std::unordered_map<std::string, InstalledFlow> before;
  for (const InstalledFlow& flow : flows_) {
    if (flow.added) {
      next.push_back(flow);
    } else {
      before.emplace(flow.config->name_, flow);
    }
  }
  const std::size_t first = next.size();
  for (const FlowConfig& flow : flows) {
    InstalledFlow& entry = next.emplace_back();
    if (const auto found = before.find(flow.name_); found != before.end()) {
      entry = found->second;
      before.erase(found);
    }
    entry.config = std::make_shared<const FlowConfig>(flow);
  }
  // Free the positions of removed flows first, for new ones.
  Positions positions = positions_;
  for (const auto& [name, flow] : before) positions.free.push_back(flow.position);
  for (InstalledFlow& entry : std::span(next).subspan(first))
    if (entry.position == NO_FLOW) take_position(entry, positions);
  std::shared_ptr<const Program> program = compile(next, nullptr);
  steering_.grow(*program);
  if (const auto refused = install(next); !refused.empty()) refuse_all(refused);
  steering_.publish(std::move(program));
  use(std::move(next), std::move(positions));
}

std::vector<InstalledFlow> FlowTable::installed() const {
  const std::lock_guard lock(mutex_);
  return flows_;
}

std::vector<InstalledFlow> FlowTable::listed() const {
  Flows flows = installed();
  const auto configured = std::ranges::find(flows, false, &InstalledFlow::added);
  std::reverse(flows.begin(), configured);
  std::rotate(flows.begin(), configured, flows.end());
  return flows;
}

std::vector<FlowConfig> FlowTable::configured() const {
  std::vector<FlowConfig> flows;
  for (const InstalledFlow& flow : installed())
    if (!flow.added) flows.push_back(*flow.config);
  return flows;
}

FlowSnapshot FlowTable::counts(const InstalledFlow& flow) const {
  return difference(steering_.counts(flow.position), flow.before);
}

const InstalledFlow& FlowTable::locate(std::uint64_t key) const {
  const auto found = std::ranges::find(flows_, key, &InstalledFlow::key);
  if (found != flows_.end()) return *found;
  throw Error(Status::INVALID_PARAMETER,
              "interface '" + config_.name_ + "': the flow was removed and has no counters");
}

InstalledFlow FlowTable::find(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  return locate(key);
}

FlowSnapshot FlowTable::counts(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  return counts(locate(key));
}

std::optional<FlowSnapshot> FlowTable::removed() const {
  const std::lock_guard lock(mutex_);
  if (positions_.next_key == flows_.size()) return {};
  FlowSnapshot sum;
  const auto add = [&](const FlowSnapshot& counts) {
    sum.packets += counts.packets;
    sum.bytes += counts.bytes;
  };
  for (const std::uint16_t position : positions_.free) add(steering_.counts(position));
  for (const InstalledFlow& flow : flows_) add(flow.before);
  return sum;
}

}  // namespace daqiri::steering
