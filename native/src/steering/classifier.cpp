#include "steering/classifier.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "daqiri/error.h"
#include "steering/toeplitz.h"

namespace daqiri::steering {

namespace {

/// Adds all flows; `unreachable` receives those that are left out.
void add_flows(Lookup& lookup, Tunnels& tunnels, std::span<const Ranked> flows,
               const RxConfig& config, std::vector<Unreachable>* unreachable) {
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const FlowConfig& flow = *flows[i].flow;
    const auto rank = static_cast<std::uint16_t>(i);
    const auto first = Tunnels::has(flow)
                           ? tunnels.add(rank, flow)
                           : lookup.add(rank, flow.match_, tags_of(flow), config.flex_items_);
    if (first && unreachable != nullptr) unreachable->push_back({i, *first});
  }
}

std::vector<Ranked> in_file_order(const RxConfig& config) {
  std::vector<Ranked> flows;
  flows.reserve(config.flows_.size());
  for (const FlowConfig& flow : config.flows_)
    flows.push_back({&flow, static_cast<std::uint16_t>(flows.size())});
  return flows;
}

}  // namespace

std::vector<Unreachable> find_unreachable(const RxConfig& config) {
  std::vector<Unreachable> found;
  Lookup lookup;
  Tunnels tunnels;
  if (config.flows_.size() >= NO_FLOW) return found;
  add_flows(lookup, tunnels, in_file_order(config), config, &found);
  return found;
}

Program::Program(const InterfaceConfig& config) : Program(config, in_file_order(config.rx_)) {}

Program::Program(const InterfaceConfig& config, std::span<const Ranked> flows,
                 std::vector<Unreachable>* unreachable)
    : isolated_(config.rx_.flow_isolation_) {
  if (!config.rx_.queues_.empty())
    unmatched_.queue = static_cast<std::uint16_t>(config.rx_.queues_.front().common_.id_);
  rules_.reserve(flows.size());
  for (const auto& [flow, position] : flows) {
    const std::vector<std::uint16_t>& ids = flow->action_.ids_;
    rules_.push_back({ids.empty() ? flow->action_.id_ : ids.front(),
                      static_cast<std::uint16_t>(ids.size()),
                      static_cast<std::uint32_t>(queues_.size()), flow->id_, position,
                      !Tunnels::has(*flow) && tags_of(*flow) > 0});
    queues_.insert(queues_.end(), ids.begin(), ids.end());
    matches_udp_ = matches_udp_ || flow->match_.type_ != FlowMatchType::ECPRI;
    flex_bytes_ = std::max(flex_bytes_, flex_bytes_of(flow->match_, config.rx_.flex_items_));
    num_positions_ = std::max<std::size_t>(num_positions_, position + 1U);
  }
  add_flows(lookup_, tunnels_, flows, config.rx_, unreachable);
  lookup_.finish();
  tunnels_.finish();
}

std::uint64_t Program::new_serial() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::uint16_t Program::queue_of(const Rule& rule, const PacketKey& key) const noexcept {
  if (rule.num_queues < 2) return rule.queue;
  const std::uint32_t hash = toeplitz(key.ipv4_src, key.ipv4_dst, key.udp_src, key.udp_dst);
  return queues_[rule.first_queue + rss_queue(hash, rule.num_queues)];
}

Verdict Program::classify(const PacketView& packet) const noexcept {
  const std::uint16_t rank = lookup_.find(packet);
  if (!tunnels_.empty()) {
    const Tunnels::Found inner = tunnels_.find(packet, rank);
    if (inner.position != NO_FLOW) {
      const Rule& rule = rules_[inner.position];
      return {true,          queue_of(rule, inner.key), rule.flow,
              rule.position, !inner.malformed,          inner.malformed,
              inner.remains};
    }
  }
  if (rank == NO_FLOW) return unmatched_;
  const Rule& rule = rules_[rank];
  // Each verdict is built where it is returned: a copy of its small fields would wait for them.
  if (!rule.untags) return {true, queue_of(rule, packet.key), rule.flow, rule.position};
  return {true,
          queue_of(rule, packet.key),
          rule.flow,
          rule.position,
          true,
          false,
          without_tags(packet.bytes.data(), packet.length, packet.key.tags.all)};
}

}  // namespace daqiri::steering
