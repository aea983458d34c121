#include "steering/classifier.h"

#include <algorithm>
#include <limits>
#include <string>

#include "daqiri/error.h"
#include "net/headers.h"

namespace daqiri::steering {

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

Program::Program(const InterfaceConfig& config) : isolated_(config.rx_.flow_isolation_) {
  if (!config.rx_.queues_.empty())
    unmatched_.queue = static_cast<std::uint16_t>(config.rx_.queues_.front().common_.id_);
  const std::vector<FlowConfig>& flows = config.rx_.flows_;
  if (flows.size() >= std::numeric_limits<std::uint16_t>::max()) {
    throw Error(Status::INVALID_PARAMETER, "interface '" + config.name_ + "' has " +
                                               std::to_string(flows.size()) +
                                               " flows; at most 65534 are accepted");
  }
  rules_.reserve(flows.size());
  for (const FlowConfig& flow : flows) {
    const std::uint16_t queue =
        flow.action_.ids_.empty() ? flow.action_.id_ : flow.action_.ids_.front();
    rules_.push_back({flow.match_, queue, flow.id_});
    FlowMatch& match = rules_.back().match;
    match.ipv4_src_ = ntohl(match.ipv4_src_);
    match.ipv4_dst_ = ntohl(match.ipv4_dst_);
  }
  if (rules_.empty()) return;
  constexpr std::size_t NUM_PORTS = 65536;
  first_rule_.assign(NUM_PORTS, static_cast<std::uint16_t>(rules_.size()));
  // Backwards, so that the rule written first stays.
  for (std::size_t i = rules_.size(); i-- > 0;) {
    const PortRange& range = rules_[i].match.udp_dst_;
    const auto begin = first_rule_.begin() + (range.any() ? 0 : range.lo);
    const auto end = range.any() ? first_rule_.end() : first_rule_.begin() + range.hi + 1;
    if (begin < end) std::fill(begin, end, static_cast<std::uint16_t>(i));
  }
}

Verdict Program::classify(const PacketView& packet) const noexcept {
  const PacketKey& key = packet.key;
  if ((!key.ipv4_udp && !key.ipv6_udp) || rules_.empty()) return unmatched_;
  for (std::size_t i = first_rule_[key.udp_dst]; i < rules_.size(); ++i) {
    const FlowMatch& match = rules_[i].match;
    if (match.udp_dst_.contains(key.udp_dst) && match.udp_src_.contains(key.udp_src) &&
        (match.ipv4_len_ == 0 || match.ipv4_len_ == key.ipv4_len) &&
        (match.ipv4_src_ == 0 || match.ipv4_src_ == key.ipv4_src) &&
        (match.ipv4_dst_ == 0 || match.ipv4_dst_ == key.ipv4_dst)) {
      return {true, rules_[i].queue, rules_[i].flow, static_cast<std::uint16_t>(i)};
    }
  }
  return unmatched_;
}

void Steering::publish(std::shared_ptr<const Program> program) noexcept {
  const std::lock_guard lock(mutex_);
  // The parameter now holds the program before, which goes with its last reader.
  program_.swap(program);
  version_.fetch_add(1, std::memory_order_release);
}

FlowTally& Steering::add_tally() const {
  const std::lock_guard lock(mutex_);
  return tallies_.emplace_back(program_->num_flows());
}

FlowSnapshot Steering::counts(std::size_t position) const {
  const std::lock_guard lock(mutex_);
  FlowSnapshot counts;
  for (const FlowTally& tally : tallies_) {
    const auto [packets, bytes] = tally.read(position);
    counts.packets += packets;
    counts.bytes += bytes;
  }
  return counts;
}

void Steering::Reader::take() noexcept {
  const std::lock_guard lock(steering_.mutex_);
  program_ = steering_.program_;
  version_ = steering_.version_.load(std::memory_order_relaxed);
}

}  // namespace daqiri::steering
