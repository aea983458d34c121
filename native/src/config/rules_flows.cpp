// Flows: ids, actions, match classes.
#include <set>

#include "config/rules.h"

namespace daqiri::config {
namespace {

struct FlowIds {
  std::map<FlowId, std::string> first;
};

std::string action_path(const Findings& findings, const std::string& flow, std::size_t index) {
  return findings.given(join(flow, "actions")) ? element(flow, "actions", index)
                                               : join(flow, "action");
}

void check_id(Findings& findings, const std::string& path, FlowId id, FlowIds& ids) {
  const std::string id_path = join(path, "id");
  if (findings.bad(id_path)) return;
  if (id == 0) {
    findings.warning(id_path,
                     "found 0, which packets that match no flow have too; give the flow an id from "
                     "1 on to tell them apart");
    return;
  }
  const auto [seen, is_new] = ids.first.emplace(id, path);
  if (!is_new) {
    findings.error(id_path, "found " + std::to_string(id) + ", also the id of " + seen->second +
                                "; accepts an id that no other flow of any interface has");
  }
}

void check_queue_ids(Findings& findings, const std::string& path, const FlowAction& action,
                     const RxConfig& rx, const std::string& rx_path) {
  std::set<int> known;
  std::string accepted;
  for (std::size_t i = 0; i < rx.queues_.size(); ++i) {
    if (findings.bad(join(element(rx_path, "queues", i), "id"))) return;
    if (known.insert(rx.queues_[i].id_).second)
      accepted += (accepted.empty() ? "" : ", ") + std::to_string(rx.queues_[i].id_);
  }
  if (known.empty()) return;
  const bool spread = findings.given(join(path, "ids"));
  const std::vector<std::uint16_t> ids =
      action.ids_.empty() ? std::vector{action.id_} : action.ids_;
  std::set<int> used;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string id_path = spread ? element(path, "ids", i) : join(path, "id");
    if (findings.bad(id_path)) continue;
    if (!known.contains(ids[i])) {
      findings.error(id_path, "found " + std::to_string(ids[i]) +
                                  ", which is no receive queue of this interface; accepts " +
                                  accepted);
    } else if (!used.insert(ids[i]).second) {
      findings.error(id_path, "found " + std::to_string(ids[i]) +
                                  " for the second time; accepts each queue once");
    }
  }
}

/// A list of transforms that ends in a queue.
void check_rx_actions(Subject& subject, const std::string& path, const FlowConfig& flow,
                      const RxConfig& rx, const std::string& rx_path) {
  Findings& findings = subject.findings;
  const std::string list = join(path, "actions");
  if (findings.bad(list) || findings.bad(join(path, "action"))) return;
  const auto& actions = flow.actions_;
  if (actions.empty())
    return findings.error(
        list, "found an empty list; accepts actions of which the last is of type queue");
  const FlowMatchType match =
      findings.bad(join(path, "match")) ? FlowMatchType::IPV4_UDP : flow.match_.type_;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const std::string at = action_path(findings, path, i);
    if (findings.bad(join(at, "type"))) continue;
    const bool last = i + 1 == actions.size();
    if (actions[i].type_ == FlowActionType::QUEUE) {
      if (!last)
        findings.error(join(at, "type"),
                       "found 'queue' before the end of the list; accepts it as the last action");
      if (match == FlowMatchType::ECPRI && actions[i].ids_.size() > 1) {
        findings.error(join(at, "ids"),
                       "found several queues for an eCPRI flow, which has no addresses to spread "
                       "by; accepts id");
      }
      check_queue_ids(findings, at, actions[i], rx, rx_path);
      continue;
    }
    if (last)
      findings.error(join(at, "type"),
                     "found a transform as the last action; accepts 'queue' there");
    if (match == FlowMatchType::FLEX_ITEM) {
      findings.error(join(at, "type"),
                     "found a transform on a flow that matches by flex item; accepts 'queue' only");
    }
    if (!subject.raw() && !findings.bad("stream_type")) {
      findings.error(join(at, "type"),
                     "found a transform on a socket stream; accepts 'queue' (transforms need "
                     "stream_type: raw)");
    }
  }
}

std::string describe(FlowMatchType type) {
  switch (type) {
    case FlowMatchType::IPV4_UDP:
      return "UDP/IPv4";
    case FlowMatchType::FLEX_ITEM:
      return "flex item";
    case FlowMatchType::ECPRI:
      return "eCPRI";
  }
  return {};
}

void check_flex_match(Findings& findings, const std::string& match_path, const FlexItemMatch& match,
                      const RxConfig& rx, const std::string& rx_path) {
  bool found = false;
  std::string accepted;
  for (std::size_t i = 0; i < rx.flex_items_.size(); ++i) {
    if (findings.bad(join(element(rx_path, "flex_items", i), "id"))) return;
    found = found || rx.flex_items_[i].id_ == match.flex_item_id_;
    accepted += (accepted.empty() ? "" : ", ") + std::to_string(rx.flex_items_[i].id_);
  }
  if (!found && !findings.bad(join(rx_path, "flex_items"))) {
    findings.error(join(match_path, "flex_item_id"),
                   "found " + std::to_string(match.flex_item_id_) +
                       ", which is no flex item of this interface; accepts " +
                       (accepted.empty() ? "an id under rx.flex_items, which is empty" : accepted));
  }
  if ((match.val_ & ~match.mask_) != 0) {
    findings.warning(join(match_path, "val"), "has bits outside of mask: no packet ever matches");
  }
}

void check_rx(Subject& subject, const RxConfig& rx, const std::string& path, FlowIds& ids) {
  Findings& findings = subject.findings;
  check_unique_names(findings, path, "flows", rx.flows_);
  check_unique_names(findings, path, "flex_items", rx.flex_items_);
  std::map<int, std::size_t> flex_ids;
  for (std::size_t i = 0; i < rx.flex_items_.size(); ++i) {
    const std::string id_path = join(element(path, "flex_items", i), "id");
    const auto [seen, is_new] = flex_ids.emplace(rx.flex_items_[i].id_, i);
    if (!is_new && !findings.bad(id_path)) {
      findings.error(id_path, "found " + std::to_string(rx.flex_items_[i].id_) +
                                  ", also the id of " + element(path, "flex_items", seen->second) +
                                  "; accepts an id of its own");
    }
  }

  std::string class_from;
  FlowMatchType match_class = FlowMatchType::IPV4_UDP;
  for (std::size_t i = 0; i < rx.flows_.size(); ++i) {
    const FlowConfig& flow = rx.flows_[i];
    const std::string flow_path = element(path, "flows", i);
    const std::string match_path = join(flow_path, "match");
    check_id(findings, flow_path, flow.id_, ids);
    check_rx_actions(subject, flow_path, flow, rx, path);
    if (findings.bad(match_path)) continue;
    if (flow.match_.type_ == FlowMatchType::FLEX_ITEM &&
        !findings.bad(join(match_path, "flex_item_id"))) {
      check_flex_match(findings, match_path, flow.match_.flex_item_match_, rx, path);
    }
    if (class_from.empty()) {
      class_from = flow_path;
      match_class = flow.match_.type_;
    } else if (flow.match_.type_ != match_class) {
      findings.error(match_path, "found a " + describe(flow.match_.type_) + " match, while " +
                                     class_from + " has a " + describe(match_class) +
                                     " match; accepts one kind on an interface");
    }
  }
}

void check_tx(Subject& subject, const TxConfig& tx, const std::string& path) {
  Findings& findings = subject.findings;
  check_unique_names(findings, path, "flows", tx.flows_);
  for (std::size_t i = 0; i < tx.flows_.size(); ++i) {
    const TxFlowConfig& flow = tx.flows_[i];
    const std::string flow_path = element(path, "flows", i);
    if (!subject.raw() && !findings.bad("stream_type")) {
      findings.error(flow_path,
                     "found a transmit flow on a socket stream; accepts none (transforms need "
                     "stream_type: raw)");
    } else if (flow.actions_.empty()) {
      findings.error(join(flow_path, "actions"),
                     "found no action; accepts at least one of vlan_push and tunnel_encap");
    }
  }
}

}  // namespace

void check_flows(Subject& subject) {
  FlowIds ids;
  for (std::size_t i = 0; i < subject.config.ifs_.size(); ++i) {
    const InterfaceConfig& interface = subject.config.ifs_[i];
    const std::string path = element("", "interfaces", i);
    check_rx(subject, interface.rx_, join(path, "rx"), ids);
    check_tx(subject, interface.tx_, join(path, "tx"));
  }
}

}  // namespace daqiri::config
