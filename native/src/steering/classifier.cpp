#include "steering/classifier.h"

#include <algorithm>
#include <limits>
#include <string>

#include "daqiri/error.h"
#include "net/headers.h"

namespace daqiri::steering {

namespace {

constexpr std::size_t NUM_PORTS = 65536;

const char* action_name(FlowActionType type) noexcept {
  switch (type) {
    case FlowActionType::QUEUE:
      return "queue";
    case FlowActionType::VLAN_PUSH:
      return "vlan_push";
    case FlowActionType::VLAN_POP:
      return "vlan_pop";
    case FlowActionType::TUNNEL_ENCAP:
      return "tunnel_encap";
    case FlowActionType::TUNNEL_DECAP:
      return "tunnel_decap";
  }
  return "unknown";
}

void refuse_unsupported(const FlowConfig& flow, const std::string& interface) {
  const auto refuse = [&](const std::string& what) {
    throw Error(Status::NOT_SUPPORTED,
                "interface '" + interface + "', flow '" + flow.name_ + "': " + what);
  };
  if (flow.match_.type_ == FlowMatchType::FLEX_ITEM) {
    refuse(
        "matching a flex item is not part of this build; match udp_src, udp_dst, ipv4_len, "
        "ipv4_src or ipv4_dst");
  }
  if (flow.match_.type_ == FlowMatchType::ECPRI) {
    refuse(
        "matching eCPRI is not part of this build; match udp_src, udp_dst, ipv4_len, ipv4_src or "
        "ipv4_dst");
  }
  if (flow.action_.ids_.size() > 1) {
    refuse("RSS over " + std::to_string(flow.action_.ids_.size()) +
           " queues is not part of this build; give the queue action one `id`");
  }
  const auto transform = [&](const FlowAction& action) {
    if (action.type_ == FlowActionType::QUEUE) return;
    refuse(std::string("action '") + action_name(action.type_) +
           "' is not part of this build; leave only the queue action");
  };
  for (const FlowAction& action : flow.actions_) transform(action);
  transform(flow.action_);
}

}  // namespace

PacketKey parse_frame(const std::uint8_t* frame, std::uint32_t length) noexcept {
  PacketKey key;
  if (length < ETHERNET_SIZE || load_be16(frame + ETHERNET_SIZE - 2) != ETHERTYPE_IPV4) return key;
  Ipv4Header ip;
  if (!ip.parse(frame + IPV4_AT, length - IPV4_AT) || ip.protocol != PROTOCOL_UDP) return key;
  // Only the first fragment has the UDP header. The frame may be shorter than the length that IP
  // announces: a header segment holds the headers only.
  const std::uint32_t headers = ip.size + UDP_SIZE;
  if (!ip.first_fragment() || ip.length < headers || length - IPV4_AT < headers) return key;
  const std::uint8_t* udp = frame + IPV4_AT + ip.size;
  key.ipv4_udp = true;
  key.ipv4_len = ip.length;
  key.ipv4_src = ip.source;
  key.ipv4_dst = ip.destination;
  key.udp_src = load_be16(udp);
  key.udp_dst = load_be16(udp + 2);
  return key;
}

Classifier::Classifier(const InterfaceConfig& config) {
  if (!config.rx_.queues_.empty())
    unmatched_.queue = static_cast<std::uint16_t>(config.rx_.queues_.front().id_);
  const std::vector<FlowConfig>& flows = config.rx_.flows_;
  if (flows.size() >= std::numeric_limits<std::uint16_t>::max()) {
    throw Error(Status::INVALID_PARAMETER, "interface '" + config.name_ + "' has " +
                                               std::to_string(flows.size()) +
                                               " flows; at most 65534 are accepted");
  }
  rules_.reserve(flows.size());
  for (const FlowConfig& flow : flows) {
    refuse_unsupported(flow, config.name_);
    const std::uint16_t queue =
        flow.action_.ids_.empty() ? flow.action_.id_ : flow.action_.ids_.front();
    rules_.push_back({flow.match_.udp_src_,
                      flow.match_.udp_dst_,
                      flow.match_.ipv4_len_,
                      flow.match_.ipv4_src_,
                      flow.match_.ipv4_dst_,
                      {true, queue, flow.id_}});
  }
  if (rules_.empty()) return;
  first_rule_.assign(NUM_PORTS, static_cast<std::uint16_t>(rules_.size()));
  // Backwards, so that the rule written first stays.
  for (std::size_t i = rules_.size(); i-- > 0;) {
    const PortRange& range = rules_[i].udp_dst;
    const auto begin = first_rule_.begin() + (range.any() ? 0 : range.lo);
    const auto end = range.any() ? first_rule_.end() : first_rule_.begin() + range.hi + 1;
    if (begin < end) std::fill(begin, end, static_cast<std::uint16_t>(i));
  }
}

Verdict Classifier::classify(const PacketKey& key) const noexcept {
  if ((!key.ipv4_udp && !key.ipv6_udp) || rules_.empty()) return unmatched_;
  for (std::size_t i = first_rule_[key.udp_dst]; i < rules_.size(); ++i) {
    const Rule& rule = rules_[i];
    if (rule.udp_dst.contains(key.udp_dst) && rule.udp_src.contains(key.udp_src) &&
        (rule.ipv4_len == 0 || rule.ipv4_len == key.ipv4_len) &&
        (rule.ipv4_src == 0 || rule.ipv4_src == key.ipv4_src) &&
        (rule.ipv4_dst == 0 || rule.ipv4_dst == key.ipv4_dst)) {
      return rule.verdict;
    }
  }
  return unmatched_;
}

}  // namespace daqiri::steering
