#include "session/flow_changes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daqiri/error.h"
#include "engine/registry.h"
#include "session/flow_checks.h"
#include "session/session.h"
#include "system/log.h"
#include "system/thread.h"

namespace daqiri {

namespace {

using steering::Addition;
using Whole = steering::FlowTable::Whole;

/// Queues that a flow leads to.
std::vector<std::uint16_t> queues_of(const FlowConfig& flow) {
  const FlowAction last = flow_actions(flow).back();
  return last.ids_.empty() ? std::vector{last.id_} : last.ids_;
}

/// The queues of a plan's flows are determined when the session is opened. `plans`: also those of
/// other interfaces.
void require_same_plans(const std::vector<ReorderConfig>& plans, const InterfaceConfig& interface,
                        const std::vector<FlowConfig>& now, const std::vector<FlowConfig>& wanted) {
  for (const ReorderConfig& plan : plans) {
    for (const FlowId id : plan.flow_ids_) {
      const auto before = std::ranges::find(now, id, &FlowConfig::id_);
      const auto after = std::ranges::find(wanted, id, &FlowConfig::id_);
      if (before == now.end()) continue;
      if (after != wanted.end() && queues_of(*before) == queues_of(*after)) continue;
      throw Error(Status::NOT_SUPPORTED,
                  "interface '" + interface.name_ + "': flow " + std::to_string(id) +
                      " feeds reorder config '" + plan.name_ +
                      "', whose queues are fixed while the engine is open; open it again");
    }
  }
}

void require_changeable(const Port& port) {
  if (const char* why = port.io->fixed_flows(); why != nullptr)
    throw Error(Status::NOT_SUPPORTED, "interface '" + port.config.name_ + "': " + why);
}

std::string reasons_of(std::span<const Addition> additions) {
  std::string text;
  for (const Addition& addition : additions) {
    if (!addition.refused) continue;
    text += (text.empty() ? "" : "\n") + std::string(addition.refused->what());
  }
  return text;
}

}  // namespace

FlowChanges::FlowChanges(const Session& session)
    : session_(session), traits_(engine_for(session.config()).traits) {}

void FlowChanges::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  thread_ = {};
}

void FlowChanges::require_running() const {
  if (stopped_) throw Error(Status::NOT_READY, "the engine is closed");
}

Port& FlowChanges::changeable_port(int port) const {
  Port& found = session_.port(port);
  if (!traits_.dynamic_flows) {
    throw Error(Status::NOT_SUPPORTED, "engine '" + std::string(traits_.name) +
                                           "' cannot change flows while it runs; list the flow "
                                           "under rx.flows of the interface");
  }
  require_changeable(found);
  if (!found.rx.empty()) return found;
  throw Error(Status::INVALID_PARAMETER,
              "interface '" + found.config.name_ + "' has no receive queues, which flows need");
}

Port& FlowChanges::take_installed(FlowId flow) {
  if (const auto found = installed_.find(flow); found != installed_.end())
    return *installed_.extract(found).mapped();
  const std::string number = "flow " + std::to_string(flow);
  for (std::size_t id = 0; flow != 0 && id < session_.num_ports(); ++id) {
    const Port& port = session_.port(static_cast<int>(id));
    for (const FlowConfig& each : port.flows->configured()) {
      if (each.id_ != flow) continue;
      throw Error(Status::INVALID_PARAMETER,
                  number + " is flow '" + each.name_ + "' of the configuration of interface '" +
                      port.config.name_ + "'; only flows that were added at run time are deleted");
    }
  }
  throw Error(
      Status::INVALID_PARAMETER,
      number + " is not one of the " + std::to_string(installed_.size()) +
          " flows that were added and not deleted since; accepts the id of a completed add");
}

// --- Operations

FlowOpId FlowChanges::begin(Op op) {
  require_running();
  if (num_ops_ >= MOST_OPS) {
    throw Error(Status::NO_SPACE_AVAILABLE, std::to_string(num_ops_) +
                                                " operations were started and not polled; call "
                                                "poll_flow_op until it returns NOT_READY");
  }
  if (!thread_.joinable())
    thread_ = start_thread([this](const std::stop_token& stop) { run(stop); });
  op.result.op_id_ = ++last_op_;
  pending_.push_back(std::move(op));
  ++num_ops_;
  begun_.notify_one();
  return last_op_;
}

FlowOpId FlowChanges::begin_add(int port, std::vector<FlowRuleConfig> rules, FlowOpType type) {
  Port& found = changeable_port(port);
  if (rules.empty())
    throw Error(Status::INVALID_PARAMETER, "found no flow to add; accepts at least one");
  Op op{.result = {}, .port = &found, .rules = std::move(rules)};
  op.result.type_ = type;
  const std::lock_guard lock(mutex_);
  return begin(std::move(op));
}

FlowOpId FlowChanges::begin_delete(FlowId flow) {
  const std::lock_guard lock(mutex_);
  require_running();
  Op op{.result = {}, .port = &take_installed(flow), .rules = {}};
  op.result.type_ = FlowOpType::DELETE;
  op.result.flow_id_ = flow;
  Port* const port = op.port;
  try {
    return begin(std::move(op));
  } catch (...) {
    installed_.emplace(flow, port);
    throw;
  }
}

std::optional<EndedFlowOp> FlowChanges::poll() {
  const std::lock_guard lock(mutex_);
  if (ended_.empty()) return {};
  std::optional<EndedFlowOp> ended = std::move(ended_.front());
  ended_.pop_front();
  --num_ops_;
  return ended;
}

void FlowChanges::run(const std::stop_token& stop) noexcept {
  configure_thread(std::to_string(session_.config().common_.master_core_), "daqiri-flows");
  for (;;) {
    std::deque<Op> taken;
    {
      std::unique_lock lock(mutex_);
      if (!begun_.wait(lock, stop, [this] { return !pending_.empty(); }) || stop.stop_requested())
        return;
      taken.swap(pending_);
    }
    std::vector<Op> ops(std::make_move_iterator(taken.begin()),
                        std::make_move_iterator(taken.end()));
    for (std::size_t first = 0; first < ops.size();) {
      std::size_t end = first;
      while (end < ops.size() && ops[end].port == ops[first].port) ++end;
      serve(*ops[first].port, std::span(ops).subspan(first, end - first));
      first = end;
    }
  }
}

void FlowChanges::serve(Port& port, std::span<Op> ops) noexcept {
  std::vector<FlowId> removed;
  std::vector<FlowRuleConfig> rules;
  std::vector<Addition> additions;
  Status failure = Status::SUCCESS;
  std::string why;
  const auto failed = [&](Status status, const char* text) {
    failure = status;
    why = text;
  };
  try {
    for (Op& op : ops) {
      if (op.result.type_ == FlowOpType::DELETE) removed.push_back(op.result.flow_id_);
      rules.insert(rules.end(), op.rules.begin(), op.rules.end());
    }
    additions = additions_of(port, rules);
    port.flows->change(removed, additions, Whole::ALL_THAT_ARE_ACCEPTED);
  } catch (const Error& error) {
    failed(error.status(), error.what());
  } catch (const std::exception& error) {
    failed(Status::GENERIC_FAILURE, error.what());
  }
  std::size_t next = 0;
  for (Op& op : ops) {
    FlowOpResult& result = op.result;
    result.status_ = failure;
    std::string reason = why;
    if (failure == Status::SUCCESS) {
      const auto own = std::span(additions).subspan(next, op.rules.size());
      next += op.rules.size();
      reason = reasons_of(own);
      for (const Addition& addition : own) {
        if (addition.refused) result.status_ = addition.refused->status();
        result.flow_ids_.push_back(addition.refused ? 0 : addition.flow.id_);
      }
    } else {
      result.flow_ids_.assign(op.rules.size(), 0);
    }
    if (!reason.empty())
      log(LogLevel::ERROR, reason, {.interface = port.config.name_, .queue = {}});
    const std::lock_guard lock(mutex_);
    for (const FlowId flow : result.flow_ids_)
      if (flow != 0) installed_.emplace(flow, &port);
    if (result.type_ == FlowOpType::DELETE && failure != Status::SUCCESS)
      installed_.emplace(result.flow_id_, &port);
    if (result.type_ == FlowOpType::ADD_RX) {
      result.flow_id_ = result.flow_ids_.front();
      result.flow_ids_.clear();
    }
    ended_.push_back({std::move(result), std::move(reason)});
  }
}

// --- Immediate changes

std::vector<Addition> FlowChanges::add(int port, const std::vector<FlowRuleConfig>& rules) {
  Port& found = changeable_port(port);
  std::vector<Addition> additions = additions_of(found, rules);
  for (Addition& addition : additions) addition.own_name = true;
  const auto require_good = [&] {
    for (const Addition& addition : additions) {
      if (addition.refused) throw Error(addition.refused->status(), reasons_of(additions));
    }
  };
  require_good();
  {
    const std::lock_guard lock(mutex_);
    require_running();
  }
  found.flows->change({}, additions, Whole::ALL_OR_NOTHING);
  require_good();
  const std::lock_guard lock(mutex_);
  for (const Addition& addition : additions) installed_.emplace(addition.flow.id_, &found);
  return additions;
}

void FlowChanges::remove(FlowId flow) {
  Port* port = nullptr;
  {
    const std::lock_guard lock(mutex_);
    require_running();
    port = &take_installed(flow);
  }
  try {
    port->flows->change(std::span(&flow, 1), {}, Whole::ALL_OR_NOTHING);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    installed_.emplace(flow, port);
    throw;
  }
}

NetworkConfig FlowChanges::checked(NetworkConfig wanted) const {
  if (!traits_.dynamic_flows) {
    throw Error(Status::NOT_SUPPORTED, "engine '" + std::string(traits_.name) +
                                           "' cannot change flows while it runs; open it again");
  }
  if (const ConfigReport report = validate_config(wanted); !report.ok())
    throw Error(Status::INVALID_PARAMETER, report.text());
  refuse(find_unsupported(wanted, traits_));
  const NetworkConfig& config = session_.config();
  NetworkConfig same = wanted;
  for (std::size_t i = 0; i < std::min(same.ifs_.size(), config.ifs_.size()); ++i)
    same.ifs_[i].rx_.flows_ = config.ifs_[i].rx_.flows_;
  if (config_to_yaml(same) != config_to_yaml(config)) {
    throw Error(Status::NOT_SUPPORTED,
                "the configuration differs in more than rx.flows, and only rx.flows can be changed "
                "while the engine is open; open it again");
  }
  for (std::size_t i = 0; i < session_.num_ports(); ++i) {
    const Port& port = session_.port(static_cast<int>(i));
    const std::vector<FlowConfig>& flows = wanted.ifs_[i].rx_.flows_;
    if (port.flows->configured() != flows) require_changeable(port);
    const std::vector<FlowConfig>& now = port.flows->configured();
    require_same_plans(config.ifs_[i].rx_.reorder_configs_, config.ifs_[i], now, flows);
    require_same_plans(config.reorder_configs_, config.ifs_[i], now, flows);
    port.flows->require_acceptable(flows);
  }
  return wanted;
}

void FlowChanges::configure(NetworkConfig wanted) {
  const std::lock_guard one(configuring_);
  {
    const std::lock_guard lock(mutex_);
    require_running();
  }
  wanted = checked(std::move(wanted));
  std::vector<std::pair<steering::FlowTable*, std::vector<FlowConfig>>> changed;
  changed.reserve(session_.num_ports());
  try {
    for (std::size_t i = 0; i < session_.num_ports(); ++i) {
      steering::FlowTable& table = *session_.port(static_cast<int>(i)).flows;
      const std::vector<FlowConfig>& flows = wanted.ifs_[i].rx_.flows_;
      std::vector<FlowConfig> before = table.configured();
      if (before == flows) continue;
      table.configure(flows);
      changed.emplace_back(&table, std::move(before));
    }
  } catch (...) {
    // An engine has refused a flow: those of other ports are as before, too.
    for (const auto& [table, before] : changed) table->configure(before);
    throw;
  }
}

// --- Rules

std::vector<Addition> FlowChanges::additions_of(const Port& port,
                                                const std::vector<FlowRuleConfig>& rules) {
  std::vector<Addition> additions;
  additions.reserve(rules.size());
  {
    const std::lock_guard lock(mutex_);
    if (rules.size() > UINT32_MAX - next_flow_) {
      throw Error(Status::NO_SPACE_AVAILABLE,
                  "no flow ids are left in this session; open a new one");
    }
    for (const FlowRuleConfig& rule : rules) {
      additions.push_back(
          {.flow = {rule.name_, next_flow_++, rule.action_, rule.actions_, rule.match_}});
    }
  }
  if (!additions.empty()) check_additions(session_.config(), traits_, port, additions);
  return additions;
}

}  // namespace daqiri
