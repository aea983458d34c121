#include "engines/packet/xdp_filter.h"

#include <algorithm>

namespace daqiri::packet {

namespace {

using Field = XdpFilter::Field;

constexpr unsigned bit(Field field) noexcept { return 1U << static_cast<unsigned>(field); }

/// Whether the range restricts ports. Unlike for PortRange::contains, [0, 0] means any port.
bool named(const PortRange& range) noexcept { return !range.any(); }

}  // namespace

XdpFilter::XdpFilter(const RxConfig& config) : all_(!config.flow_isolation_) {
  if (all_) return;
  for (const FlowConfig& flow : config.flows_) add(flow, config.flex_items_);
  if (config.dynamic_flow_capacity_ == 0) return;
  // Flows that are added later can match anything.
  any_flow_ = true;
  gre_ = true;
  add_udp(ANY_TAGS, {});
  ecpri_ = {ANY_TAGS};
}

void XdpFilter::add(const FlowConfig& flow, const std::vector<FlexItemConfig>& items) {
  int tags = 0;
  for (const FlowAction& action : flow.actions_) {
    if (action.type_ == FlowType::VLAN_POP) ++tags;
    if (action.type_ != FlowType::TUNNEL_DECAP) continue;
    if (action.tunnel_.type_ != TunnelType::VXLAN) {
      gre_ = true;
      return;
    }
    FlowMatch outer;
    outer.udp_dst_ = action.tunnel_.outer_udp_dst_;
    return add_udp(ANY_TAGS, outer);
  }
  if (flow.match_.type_ == FlowMatchType::ECPRI) {
    if (std::ranges::find(ecpri_, tags) == ecpri_.end()) ecpri_.push_back(tags);
    return;
  }
  if (flow.match_.type_ != FlowMatchType::FLEX_ITEM) return add_udp(tags, flow.match_);
  const int id = flow.match_.flex_item_match_.flex_item_id_;
  const auto item = std::ranges::find(items, id, &FlexItemConfig::id_);
  if (item == items.end()) return;
  Group& group = group_of(tags, bit(Field::UDP_DST));
  const std::uint32_t port = item->udp_dst_port_;
  allow(group.tables[static_cast<std::size_t>(Field::UDP_DST)], port, port);
}

void XdpFilter::add_udp(int tags, const FlowMatch& match) {
  unsigned fields = 0;
  if (named(match.udp_src_)) fields |= bit(Field::UDP_SRC);
  if (named(match.udp_dst_)) fields |= bit(Field::UDP_DST);
  if (match.ipv4_len_ != 0) fields |= bit(Field::IPV4_LEN);
  if (match.ipv4_src_ != INADDR_ANY) fields |= bit(Field::IPV4_SRC);
  if (match.ipv4_dst_ != INADDR_ANY) fields |= bit(Field::IPV4_DST);
  const Group group = group_of(tags, fields);
  const auto values = [&](Field field, std::uint32_t first, std::uint32_t last) {
    const std::uint32_t table = group.tables[static_cast<std::size_t>(field)];
    if (table != NO_TABLE) allow(table, first, last);
  };
  values(Field::UDP_SRC, match.udp_src_.lo, match.udp_src_.hi);
  values(Field::UDP_DST, match.udp_dst_.lo, match.udp_dst_.hi);
  values(Field::IPV4_LEN, match.ipv4_len_, match.ipv4_len_);
  const auto address = [&](Field field, in_addr_t value) {
    const std::uint32_t table = group.tables[static_cast<std::size_t>(field)];
    if (table != NO_TABLE) addresses_.emplace_back(table, value);
  };
  address(Field::IPV4_SRC, match.ipv4_src_);
  address(Field::IPV4_DST, match.ipv4_dst_);
}

XdpFilter::Group& XdpFilter::group_of(int tags, unsigned fields) {
  const auto [found, is_new] = positions_.try_emplace({tags, fields}, groups_.size());
  if (!is_new) return groups_[found->second];
  Group& group = groups_.emplace_back();
  group.tags = tags;
  for (std::size_t f = 0; f < NUM_FIELDS; ++f)
    group.tables[f] = (fields & 1U << f) != 0 ? num_tables_++ : NO_TABLE;
  tables_.resize(std::size_t{num_tables_} * TABLE_BYTES);
  return group;
}

void XdpFilter::allow(std::uint32_t table, std::uint32_t first, std::uint32_t last) {
  std::uint8_t* bits = &tables_[std::size_t{table} * TABLE_BYTES];
  for (std::uint32_t value = first; value <= last; ++value)
    bits[value / 8] |= static_cast<std::uint8_t>(1U << value % 8);
}

}  // namespace daqiri::packet
