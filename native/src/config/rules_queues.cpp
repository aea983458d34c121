// Rules for queues, their memory, and the flows that lead to them.
#include <bit>
#include <set>

#include "config/rules.h"
#include "steering/classifier.h"

namespace daqiri::config {
namespace {

/// Most segments of a packet.
constexpr std::size_t MOST_REGIONS = 4;

void check_queue(const Subject& subject, const Place& at, const CommonQueueConfig& queue) {
  const bool uses_regions =
      subject.raw() || subject.config.common_.protocol != SocketProtocol::ROCE;
  const Place list = at["memory_regions"];
  if (!uses_regions && !queue.mrs_.empty() && !list.bad()) {
    list.warning("has no effect: RoCE names the region with each operation");
  } else if (uses_regions && queue.mrs_.empty()) {
    list.error("found no region; accepts a list of one (whole packets) or two (headers, data)");
  } else if (uses_regions && queue.mrs_.size() > MOST_REGIONS) {
    list.error("found ", queue.mrs_.size(), " regions; accepts at most ", MOST_REGIONS,
               ", one per segment");
  }
  const Place core = at["cpu_core"];
  const int master = subject.config.common_.master_core_;
  if (subject.traits.polls_without_pause && !core.bad() && !subject.root["master_core"].bad() &&
      queue.cpu_core_ == std::to_string(master))
    core.warning("found core ", master,
                 ", which is also the master_core; give the poller its own core");

  for (const auto& [name, place] : placed(queue.mrs_, list)) {
    const auto* region = subject.regions.find(name, place, "memory region");
    if (region == nullptr || subject.raw() || !uses_regions || queue.batch_size_ <= 0) continue;
    if (region->num_bufs_ > 0 && region->num_bufs_ < static_cast<unsigned>(queue.batch_size_))
      at["batch_size"].warning("found ", queue.batch_size_, ", but memory region ",
                               quoted(region->name_), " has only ", region->num_bufs_,
                               " buffers: a burst never fills");
  }
}

void check_split(const Subject& subject, const Place& at, const CommonQueueConfig& queue) {
  const Place split = at["split_boundary"];
  if (queue.split_boundary_ == 0 || at["memory_regions"].bad()) return;
  if (queue.mrs_.size() < 2)
    return split.error(
        "found ", queue.split_boundary_,
        " on a queue of one memory region; accepts it on a queue of two (headers, data)");
  const MemoryRegionConfig* region = subject.regions.find(queue.mrs_.front());
  if (region != nullptr && region->buf_size_ > 0 &&
      static_cast<std::size_t>(queue.split_boundary_) > region->buf_size_)
    split.error("found ", queue.split_boundary_, ", more than the ", region->buf_size_,
                " bytes of a buffer of ", quoted(region->name_), "; accepts at most that");
}

/// In direct mode, the caller polls, which raw engines support: there is no core, batch size or
/// priority, and receive queues have no timeout. RoCE has no such queues.
void check_poll_mode(const Subject& subject, const Place& at, QueuePollMode mode, bool rx) {
  if (mode != QueuePollMode::DIRECT || at["poll_mode"].bad()) return;
  const bool accepted = subject.in_memory() || !subject.engine_known() ||
                        (subject.traits.direct_mode && !subject.roce());
  for (const std::string_view key : {"cpu_core", "batch_size", "realtime_priority", "timeout_us"}) {
    if (accepted && at[key].given() && (rx || key != "timeout_us"))
      at[key].error("a queue with poll_mode: direct is polled by its caller; remove the key");
  }
  if (accepted) return;
  const auto engines =
      documented_engines([](const EngineTraits& each) { return each.raw && each.direct_mode; });
  at["poll_mode"].error("found 'direct' with engine '", engine_name(subject.config.common_),
                        "'; accepts it with loopback: sw, and with stream_type: raw and engine ",
                        alternatives(engines), "; otherwise accepts 'indirect'");
}

template <class Queue>
void check_side(const Subject& subject, const Place& at, const std::vector<Queue>& queues) {
  const Place list = at["queues"];
  if (list.given() && queues.empty()) list.error("found an empty list; accepts at least one queue");
  check_unique<std::string>(at, "queues", "name", queues, QUEUE_NAME);
  for (const auto& [queue, place] : placed(queues, list)) {
    check_queue(subject, place, queue.common_);
    check_poll_mode(subject, place, queue.poll_mode_, std::is_same_v<Queue, RxQueueConfig>);
  }
}

/// `ids`: path of the first flow with each id.
void check_id(const Place& flow, FlowId id, std::map<FlowId, std::string>& ids) {
  const Place at = flow["id"];
  if (at.bad()) return;
  if (id == 0)
    return at.warning(
        "found 0, which is also the flow id of packets that match no flow; give the flow an id of "
        "1 or more");
  const auto [seen, is_new] = ids.emplace(id, flow.path());
  if (!is_new)
    at.error("found ", id, ", also the id of ", seen->second,
             "; accepts an id that no other flow of any interface has");
}

/// Flows are counted by position, and the number after the last position is none.
void check_number(const Place& list, std::size_t flows) {
  constexpr std::size_t MOST_FLOWS = steering::NO_FLOW - 1;
  if (flows > MOST_FLOWS) list.error("found ", flows, " flows; accepts at most ", MOST_FLOWS);
}

/// The receive side of one interface.
struct Receive {
  const Subject& subject;
  const Place at;
  const RxConfig& rx;
  const Index<RxQueueConfig, int> queues{at, "queues", "id", rx.queues_, QUEUE_ID};
  const Index<FlexItemConfig, int> flex_items{at, "flex_items", "id", rx.flex_items_,
                                              &FlexItemConfig::id_};

  void check(std::map<FlowId, std::string>& ids) const {
    for (const auto& [queue, place] : placed(rx.queues_, at["queues"]))
      check_split(subject, place, queue.common_);
    check_number(at["flows"], rx.flows_.size());
    check_unique<std::string>(at, "flows", "name", rx.flows_, &FlowConfig::name_);
    check_unique<std::string>(at, "flex_items", "name", rx.flex_items_, &FlexItemConfig::name_);
    std::string class_from;
    FlowMatchType match_class = FlowMatchType::IPV4_UDP;
    for (const auto& [flow, place] : placed(rx.flows_, at["flows"])) {
      check_id(place, flow.id_, ids);
      check_actions(place, flow);
      const Place match = place["match"];
      if (match.bad()) continue;
      if (flow.match_.type_ == FlowMatchType::FLEX_ITEM)
        check_flex_match(match, flow.match_.flex_item_match_);
      if (flow.match_.type_ == FlowMatchType::ECPRI)
        check_ecpri_match(match["ecpri"], flow.match_.ecpri_match_);
      if (class_from.empty()) {
        class_from = place.path();
        match_class = flow.match_.type_;
      } else if (flow.match_.type_ != match_class) {
        match.error("found a ", describe(flow.match_.type_), " match, while ", class_from,
                    " has a ", describe(match_class), " match; accepts one kind on an interface");
      }
    }
    check_order();
  }

 private:
  static std::string_view describe(FlowMatchType type) {
    if (type == FlowMatchType::IPV4_UDP) return "UDP";
    return type == FlowMatchType::FLEX_ITEM ? "flex item" : "eCPRI";
  }

  /// Warns of flows that no packet reaches.
  void check_order() const {
    const Place list = at["flows"];
    for (const auto& [flow, taken_by] : steering::find_unreachable(rx)) {
      const Place match = list[flow]["match"];
      const auto bad = [&](std::size_t i) {
        return list[i]["match"].bad() || list[i]["actions"].bad();
      };
      if (bad(flow) || bad(taken_by)) continue;
      match.warning("no packet reaches this flow: flow ", quoted(rx.flows_[taken_by].name_),
                    " comes first and matches all packets of flow ", quoted(rx.flows_[flow].name_),
                    "; move this flow in front of it, or remove one of the two");
    }
  }

  /// Checks a list of transforms that ends with a queue.
  void check_actions(const Place& place, const FlowConfig& flow) const {
    const Place list = place["actions"];
    if (list.bad() || place["action"].bad()) return;
    const auto& actions = flow.actions_;
    if (actions.empty())
      return list.error("found an empty list; accepts actions of which the last is of type queue");
    const FlowMatchType match = place["match"].bad() ? FlowMatchType::IPV4_UDP : flow.match_.type_;
    for (const auto& [value, element] : placed(actions, list)) {
      const Place action = list.given() ? element : place["action"];
      const Place type = action["type"];
      const bool last = &value == &actions.back();
      if (type.bad()) continue;
      if (value.type_ == FlowType::QUEUE) {
        if (!last)
          type.error("found 'queue' before the end of the list; accepts it as the last action");
        if (match == FlowMatchType::ECPRI && value.ids_.size() > 1)
          action["ids"].error(
              "found several queues for an eCPRI flow, which has no addresses to spread by; "
              "accepts id");
        check_queue_ids(action, value);
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
    for (const auto& [id, element] : placed(ids, list)) {
      const Place at_id = list.given() ? element : action["id"];
      if (queues.find(id, at_id, "receive queue of this interface") != nullptr &&
          !used.insert(id).second)
        at_id.error("found ", id, " for the second time; accepts each queue once");
    }
  }

  static void check_ecpri_match(const Place& place, const EcpriMatch& match) {
    constexpr int LAST_TYPE_WITH_ID = 3;
    if (match.match_msg_type_ && match.match_id_ && match.msg_type_ > LAST_TYPE_WITH_ID)
      place["msg_type"].warning("found ", int{match.msg_type_},
                                " with an id, which only messages of types 0 to ",
                                LAST_TYPE_WITH_ID, " have: no packet ever matches");
  }

  void check_flex_match(const Place& place, const FlexItemMatch& match) const {
    flex_items.find(match.flex_item_id_, place["flex_item_id"], "flex item of this interface");
    if ((match.val_ & ~match.mask_) != 0)
      place["val"].warning("has bits outside of mask: no packet ever matches");
  }
};

void check_tx(const Subject& subject, const TxConfig& tx, const Place& at) {
  check_number(at["flows"], tx.flows_.size());
  check_unique<std::string>(at, "flows", "name", tx.flows_, &FlowConfig::name_);
  for (const auto& [flow, place] : placed(tx.flows_, at["flows"])) {
    if (subject.sockets()) {
      place.error(
          "found a transmit flow on a socket stream; accepts none (transforms need stream_type: "
          "raw)");
    } else if (flow.actions_.empty()) {
      place["actions"].error("found no action; accepts at least one of vlan_push and tunnel_encap");
    }
  }
}

}  // namespace

void check_queues_and_flows(Subject& subject, const InterfaceConfig& interface, const Place& at) {
  check_side(subject, at["rx"], interface.rx_.queues_);
  check_side(subject, at["tx"], interface.tx_.queues_);
  check_unique<int>(at["tx"], "queues", "id", interface.tx_.queues_, QUEUE_ID);
  Receive{subject, at["rx"], interface.rx_}.check(subject.flow_ids);
  check_tx(subject, interface.tx_, at["tx"]);
}

void raise_num_bufs(Subject& subject) {
  if (!subject.raw() || subject.root["stream_type"].bad()) return;
  // The largest ring that uses each region, and its queue.
  std::map<std::string_view, std::pair<std::uint64_t, std::string_view>> needs;
  const auto note = [&](const CommonQueueConfig& queue) {
    const std::uint64_t ring = rx_ring_size(subject.config, queue);
    for (const std::string& name : queue.mrs_) {
      auto& need = needs[name];
      if (ring > need.first) need = {ring, queue.name_};
    }
  };
  for (const InterfaceConfig& interface : subject.config.ifs_) {
    for (const RxQueueConfig& queue : interface.rx_.queues_) note(queue.common_);
    for (const TxQueueConfig& queue : interface.tx_.queues_) note(queue.common_);
  }
  for (auto& [name, region] : subject.config.mrs_) {
    const Place at = subject.root["memory_regions"][region.position_]["num_bufs"];
    const auto& [ring, queue] = needs[region.name_];
    if (at.bad() || 2 * region.num_bufs_ >= 3 * ring) continue;
    at.warning("raised from ", region.num_bufs_, " to ", 3 * ring, ": queue ", quoted(queue),
               " has a ring of ", ring, " packets and needs at least ", ring * 3 / 2, " buffers");
    region.num_bufs_ = 3 * ring;
  }
}

}  // namespace daqiri::config

namespace daqiri {

std::uint32_t rx_ring_size(const NetworkConfig& config, const CommonQueueConfig& queue) noexcept {
  constexpr int SMALLEST_RING = 64;
  const EngineTraits traits = config::traits_of(config);
  if (!traits.rx_ring) return 0;
  if (traits.rx_descriptors != 0) return traits.rx_descriptors;
  return std::bit_ceil(static_cast<std::uint32_t>(std::max(queue.batch_size_, SMALLEST_RING)));
}

}  // namespace daqiri
