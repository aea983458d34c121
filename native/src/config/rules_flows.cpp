// Flows: ids, actions, match classes.
#include <set>

#include "config/rules.h"

namespace daqiri::config {
namespace {

/// Where a flow id was given first.
using FlowIds = std::map<FlowId, std::string>;

void check_id(const Place& flow, FlowId id, FlowIds& ids) {
  const Place at = flow["id"];
  if (at.bad()) return;
  if (id == 0)
    return at.warning(
        "found 0, which packets that match no flow have too; give the flow an id from 1 on to tell "
        "them apart");
  const auto [seen, is_new] = ids.emplace(id, flow.path());
  if (!is_new)
    at.error("found ", id, ", also the id of ", seen->second,
             "; accepts an id that no other flow of any interface has");
}

/// Of one interface.
struct Receive {
  const Subject& subject;
  const Place at;
  const RxConfig& rx;
  const Index<RxQueueConfig, int> queues{at, "queues", "id", rx.queues_, &QueueConfig::id_};
  const Index<FlexItemConfig, int> flex_items{at, "flex_items", "id", rx.flex_items_,
                                              &FlexItemConfig::id_};

  void check(FlowIds& ids) const {
    check_unique(at, "flows", "name", rx.flows_, &FlowConfig::name_);
    check_unique(at, "flex_items", "name", rx.flex_items_, &FlexItemConfig::name_);
    std::string class_from;
    FlowMatchType match_class = FlowMatchType::IPV4_UDP;
    for (std::size_t i = 0; i < rx.flows_.size(); ++i) {
      const FlowConfig& flow = rx.flows_[i];
      const Place place = at["flows"][i];
      check_id(place, flow.id_, ids);
      check_actions(place, flow);
      const Place match = place["match"];
      if (match.bad()) continue;
      if (flow.match_.type_ == FlowMatchType::FLEX_ITEM)
        check_flex_match(match, flow.match_.flex_item_match_);
      if (class_from.empty()) {
        class_from = place.path();
        match_class = flow.match_.type_;
      } else if (flow.match_.type_ != match_class) {
        match.error("found a ", describe(flow.match_.type_), " match, while ", class_from,
                    " has a ", describe(match_class), " match; accepts one kind on an interface");
      }
    }
  }

 private:
  static std::string_view describe(FlowMatchType type) {
    if (type == FlowMatchType::IPV4_UDP) return "UDP/IPv4";
    return type == FlowMatchType::FLEX_ITEM ? "flex item" : "eCPRI";
  }

  /// A list of transforms that ends in a queue.
  void check_actions(const Place& place, const FlowConfig& flow) const {
    const Place list = place["actions"];
    if (list.bad() || place["action"].bad()) return;
    const auto& actions = flow.actions_;
    if (actions.empty())
      return list.error("found an empty list; accepts actions of which the last is of type queue");
    const FlowMatchType match = place["match"].bad() ? FlowMatchType::IPV4_UDP : flow.match_.type_;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const Place action = list.given() ? list[i] : place["action"];
      const Place type = action["type"];
      const bool last = i + 1 == actions.size();
      if (type.bad()) continue;
      if (actions[i].type_ == FlowActionType::QUEUE) {
        if (!last)
          type.error("found 'queue' before the end of the list; accepts it as the last action");
        if (match == FlowMatchType::ECPRI && actions[i].ids_.size() > 1)
          action["ids"].error(
              "found several queues for an eCPRI flow, which has no addresses to spread by; "
              "accepts id");
        check_queue_ids(action, actions[i]);
        continue;
      }
      if (last) type.error("found a transform as the last action; accepts 'queue' there");
      if (match == FlowMatchType::FLEX_ITEM)
        type.error("found a transform on a flow that matches by flex item; accepts 'queue' only");
      if (subject.sockets())
        type.error(
            "found a transform on a socket stream; accepts 'queue' (transforms need stream_type: "
            "raw)");
    }
  }

  void check_queue_ids(const Place& action, const FlowAction& value) const {
    const Place list = action["ids"];
    const std::vector<std::uint16_t> ids = value.ids_.empty() ? std::vector{value.id_} : value.ids_;
    std::set<int> used;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Place at_id = list.given() ? list[i] : action["id"];
      if (queues.find(ids[i], at_id, "receive queue of this interface") != nullptr &&
          !used.insert(ids[i]).second)
        at_id.error("found ", ids[i], " for the second time; accepts each queue once");
    }
  }

  void check_flex_match(const Place& place, const FlexItemMatch& match) const {
    flex_items.find(match.flex_item_id_, place["flex_item_id"], "flex item of this interface");
    if ((match.val_ & ~match.mask_) != 0)
      place["val"].warning("has bits outside of mask: no packet ever matches");
  }
};

void check_tx(const Subject& subject, const TxConfig& tx, const Place& at) {
  check_unique(at, "flows", "name", tx.flows_, &TxFlowConfig::name_);
  for (std::size_t i = 0; i < tx.flows_.size(); ++i) {
    const Place flow = at["flows"][i];
    if (subject.sockets()) {
      flow.error(
          "found a transmit flow on a socket stream; accepts none (transforms need stream_type: "
          "raw)");
    } else if (tx.flows_[i].actions_.empty()) {
      flow["actions"].error("found no action; accepts at least one of vlan_push and tunnel_encap");
    }
  }
}

}  // namespace

void check_flows(Subject& subject) {
  FlowIds ids;
  for (std::size_t i = 0; i < subject.config.ifs_.size(); ++i) {
    const InterfaceConfig& interface = subject.config.ifs_[i];
    const Place at = subject.interface(i);
    Receive{subject, at["rx"], interface.rx_}.check(ids);
    check_tx(subject, interface.tx_, at["tx"]);
  }
}

}  // namespace daqiri::config
