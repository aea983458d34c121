#include "engines/dpdk/flow_rules.h"

#include <rte_ethdev.h>
#include <rte_flow.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "daqiri/error.h"
#include "engines/dpdk/eal.h"
#include "steering/toeplitz.h"
#include "system/log.h"

namespace daqiri::dpdk {

namespace {

using steering::Header;
using steering::HeaderMatch;
using steering::InstalledFlow;
using steering::Pattern;

constexpr std::string_view HARDWARE = "hardware";
/// Smaller numbers are used first.
constexpr std::uint32_t FLOW_PRIORITY = 0;
constexpr std::uint32_t EVERYTHING_PRIORITY = 1;

rte_flow_item_type type_of(Header header) noexcept {
  switch (header) {
    case Header::ETHERNET:
      return RTE_FLOW_ITEM_TYPE_ETH;
    case Header::VLAN:
      return RTE_FLOW_ITEM_TYPE_VLAN;
    case Header::IPV4:
      return RTE_FLOW_ITEM_TYPE_IPV4;
    case Header::IPV6:
      return RTE_FLOW_ITEM_TYPE_IPV6;
    case Header::UDP:
      return RTE_FLOW_ITEM_TYPE_UDP;
    case Header::VXLAN:
      return RTE_FLOW_ITEM_TYPE_VXLAN;
    case Header::GRE:
      return RTE_FLOW_ITEM_TYPE_GRE;
    case Header::NVGRE:
      return RTE_FLOW_ITEM_TYPE_NVGRE;
    case Header::ECPRI:
      return RTE_FLOW_ITEM_TYPE_ECPRI;
  }
  return RTE_FLOW_ITEM_TYPE_END;
}

/// What DPDK reads of an item. Its structures begin with the header, as it is in the packet.
union Item {
  rte_flow_item_eth ethernet;
  rte_flow_item_vlan vlan;
  rte_flow_item_ipv4 ipv4;
  rte_flow_item_ipv6 ipv6;
  rte_flow_item_udp udp;
  rte_flow_item_vxlan vxlan;
  rte_flow_item_gre gre;
  rte_flow_item_nvgre nvgre;
  rte_flow_item_ecpri ecpri;
};
static_assert(sizeof(Item) >= std::tuple_size_v<decltype(HeaderMatch::value)>);
static_assert(offsetof(rte_flow_item_eth, hdr.ether_type) == 12);
static_assert(offsetof(rte_flow_item_vlan, hdr.eth_proto) == 2);
static_assert(offsetof(rte_flow_item_ipv4, hdr.dst_addr) == 16);
static_assert(offsetof(rte_flow_item_udp, hdr.dst_port) == 2);
static_assert(offsetof(rte_flow_item_vxlan, vni) == 4);
static_assert(offsetof(rte_flow_item_gre, protocol) == 2);
static_assert(offsetof(rte_flow_item_nvgre, flow_id) == 7);

Item item_of(const std::array<std::uint8_t, 20>& bytes) noexcept {
  Item item;
  std::memset(&item, 0, sizeof item);
  std::memcpy(&item, bytes.data(), bytes.size());
  return item;
}

/// A pattern as DPDK takes it.
class Items {
 public:
  explicit Items(const Pattern& pattern) {
    for (const HeaderMatch& match : pattern) {
      rte_flow_item& item = items_.emplace_back();
      item = {type_of(match.header), nullptr, nullptr, nullptr};
      // Without values, as devices want items that compare nothing.
      if (match.mask == HeaderMatch{match.header}.mask) continue;
      item.spec = &memory_.emplace_back(item_of(match.value));
      item.mask = &memory_.emplace_back(item_of(match.mask));
    }
    items_.push_back({RTE_FLOW_ITEM_TYPE_END, nullptr, nullptr, nullptr});
  }
  [[nodiscard]] const rte_flow_item* data() const noexcept { return items_.data(); }

 private:
  std::vector<rte_flow_item> items_;
  /// Does not move its elements.
  std::deque<Item> memory_;
};

/// What the device said, and DPDK reported.
std::string reason_of(const rte_flow_error& error) {
  std::string why = Reports::reason(rte_errno);
  // Of a device without rules, DPDK says the same.
  if (error.message == nullptr || why.starts_with(error.message)) return why;
  return error.message + (": " + why);
}

}  // namespace

FlowRules::FlowRules(std::uint16_t device, const InterfaceConfig& interface)
    : device_(device), interface_(interface) {}

void FlowRules::isolate() {
  const RxConfig& rx = interface_.rx_;
  if (!rx.flow_isolation_ || rx.queues_.empty()) return;
  std::string why;
  for (const FlowConfig& flow : rx.flows_) {
    if (why.empty()) {
      why = steering::patterns_of(flow).reason;
      if (!why.empty()) why.insert(0, "flow '" + flow.name_ + "': ");
    }
  }
  if (why.empty()) {
    rte_flow_error error{};
    isolated_ = rte_flow_isolate(device_, 1, &error) == 0;
    if (!isolated_) why = reason_of(error);
  }
  if (!isolated_) {
    log(LogLevel::INFO, "interface '" + interface_.name_ +
                            "': flow_isolation is done by the engine, which discards packets of no "
                            "flow; the device cannot leave them to the kernel: " +
                            why);
  }
}

FlowRules::~FlowRules() {
  if (!owns_eal()) return;
  for (auto& [key, rules] : rules_) destroy(rules);
  destroy(everything_);
}

std::string FlowRules::create(const Pattern& pattern, const std::vector<std::uint16_t>& queues,
                              std::uint32_t priority, Rules& rules) const {
  rte_flow_attr attributes{};
  attributes.ingress = 1;
  attributes.priority = priority;
  const Items items(pattern);
  const rte_flow_action_queue queue{.index = queues.front()};
  // The queues of a flow are chosen by the program: the device divides the work among their cores.
  rte_flow_action_rss spread{};
  spread.types = RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP;
  spread.queue_num = static_cast<std::uint32_t>(queues.size());
  spread.queue = queues.data();
  const rte_flow_action one{RTE_FLOW_ACTION_TYPE_QUEUE, &queue};
  const rte_flow_action several{RTE_FLOW_ACTION_TYPE_RSS, &spread};
  const rte_flow_action actions[] = {queues.size() == 1 ? one : several,
                                     {RTE_FLOW_ACTION_TYPE_END, nullptr}};
  rte_flow_error error{};
  rules.reserve(rules.size() + 1);
  if (rte_flow_validate(device_, &attributes, items.data(), actions, &error) != 0)
    return reason_of(error);
  rte_flow* const rule = rte_flow_create(device_, &attributes, items.data(), actions, &error);
  if (rule == nullptr) return reason_of(error);
  rules.push_back(rule);
  return {};
}

std::string FlowRules::create(const FlowConfig& flow, const QueuesOf& queues_of,
                              Rules& rules) const {
  const steering::FlowPatterns patterns = steering::patterns_of(flow);
  if (patterns.any.empty()) return patterns.reason;
  const std::vector<std::uint16_t> queues = queues_of(flow);
  for (const Pattern& pattern : patterns.any) {
    const std::string why = create(pattern, queues, FLOW_PRIORITY, rules);
    if (why.empty()) continue;
    destroy(rules);
    return why;
  }
  return {};
}

void FlowRules::retry(const FlowConfig& flow, const QueuesOf& queues_of, Rules& rules,
                      std::string& why) const noexcept {
  try {
    why = create(flow, queues_of, rules);
  } catch (const std::bad_alloc&) {
    destroy(rules);
  }
}

void FlowRules::destroy(Rules& rules) const noexcept {
  for (rte_flow* const rule : rules) {
    rte_flow_error error{};
    if (rte_flow_destroy(device_, rule, &error) == 0) continue;
    try {
      log(LogLevel::WARN, "interface '" + interface_.name_ +
                              "': the device does not give a rule back: " + reason_of(error));
    } catch (const std::bad_alloc&) {
      continue;
    }
  }
  rules.clear();
}

/// Rules by flow of a change; those that are not taken over are destroyed.
struct FlowRules::NewRules {
  NewRules(const FlowRules& owner, std::size_t count) : all(count), owner_(owner) {}
  NewRules(const NewRules&) = delete;
  NewRules& operator=(const NewRules&) = delete;
  ~NewRules() {
    for (Rules& rules : all) owner_.destroy(rules);
  }

  std::vector<Rules> all;

 private:
  const FlowRules& owner_;
};

void FlowRules::install(steering::FlowUpdate& update, const QueuesOf& queues_of) {
  const Reports collected;
  const std::size_t count = update.added.size();
  NewRules created(*this, count);
  std::vector<std::string> why(count);
  const auto flow_at = [&](std::size_t i) -> InstalledFlow& {
    return update.flows[update.added[i]];
  };
  for (std::size_t i = 0; i < count; ++i)
    why[i] = create(*flow_at(i).config, queues_of, created.all[i]);
  // Packets of a flow without rules must not stay with the kernel, at no time.
  if (isolated_ && everything_.empty() &&
      std::ranges::any_of(created.all, [](const Rules& rules) { return rules.empty(); })) {
    const std::string refusal = create({{Header::ETHERNET}}, {0}, EVERYTHING_PRIORITY, everything_);
    if (!refusal.empty()) {
      for (std::size_t i = 0; i < count; ++i) {
        if (!created.all[i].empty()) continue;
        update.refused.emplace_back(
            update.added[i],
            Error(Status::NOT_SUPPORTED,
                  "the device leaves packets without a rule to the kernel (flow_isolation), and "
                  "has no rule for this flow: " +
                      why[i] + ", nor for all packets: " + refusal +
                      "; set flow_isolation: false"));
      }
      return;
    }
  }
  // From here on, nothing is refused.
  for (std::size_t i = 0; i < count; ++i) rules_.try_emplace(flow_at(i).key);
  bool ended = false;
  for (const InstalledFlow& flow : update.removed) {
    const auto found = rules_.find(flow.key);
    if (found == rules_.end()) continue;
    ended = ended || !found->second.empty();
    destroy(found->second);
  }
  for (std::size_t i = 0; i < count; ++i) {
    InstalledFlow& flow = flow_at(i);
    // Devices refuse a rule that differs from another in its queue only.
    if (ended && created.all[i].empty()) retry(*flow.config, queues_of, created.all[i], why[i]);
    rules_.at(flow.key).swap(created.all[i]);
    flow.offload = why[i].empty() ? HARDWARE : std::string_view{};
    flow.offload_reason = std::move(why[i]);
  }
  std::erase_if(rules_, [](const auto& each) { return each.second.empty(); });
  // Every flow has rules: without the one for all packets, others stay with the kernel again.
  if (rules_.size() == update.flows.size()) destroy(everything_);
}

}  // namespace daqiri::dpdk
