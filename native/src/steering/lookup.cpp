#include "steering/lookup.h"

#include <algorithm>
#include <bit>
#include <set>

#include "net/headers.h"

namespace daqiri::steering {

namespace {

// Positions of the fields in Bits. UDP: `low` contains ports and length, `high` the addresses.
// eCPRI: `low` contains type and id. Flex items: `low` contains the word.
constexpr unsigned TAGS_AT = 56;
constexpr unsigned UDP_SRC_AT = 32;
constexpr unsigned UDP_DST_AT = 16;
constexpr unsigned IPV4_SRC_AT = 32;
/// Set if the message has an id, to distinguish id 0 from none.
constexpr unsigned HAS_ID_AT = 48;
constexpr unsigned TYPE_AT = 32;
constexpr std::uint64_t WORD = 0xFFFF;
constexpr std::uint64_t ALL_TAGS = std::uint64_t{0xFF} << TAGS_AT;

constexpr std::uint64_t at(std::uint64_t value, unsigned place) noexcept { return value << place; }

/// Converts "any port" to a range.
PortRange whole(const PortRange& range) noexcept {
  return range.any() ? PortRange{0, UINT16_MAX} : range;
}
bool single(const PortRange& range) noexcept { return !range.any() && range.lo == range.hi; }
/// `range` is converted. Unlike for PortRange::contains, [0, 0] means port 0.
bool holds(const PortRange& range, std::uint16_t port) noexcept {
  return port >= range.lo && port <= range.hi;
}
bool holds(const PortRange& range, const PortRange& other) noexcept {
  return range.lo <= other.lo && other.hi <= range.hi;
}

}  // namespace

// --- Rules

std::optional<Lookup::Rule> Lookup::rule_of(const FlowMatch& match, unsigned tags,
                                            const std::vector<FlexItemConfig>& items) {
  Rule rule{{.type = match.type_}, {}, {whole({}), whole({}), NO_FLOW}};
  Bits& mask = rule.kind.mask;
  Bits& value = rule.value;
  mask.low = ALL_TAGS;
  value.low = at(tags, TAGS_AT);
  if (match.type_ == FlowMatchType::FLEX_ITEM) {
    const FlexItemMatch& flex = match.flex_item_match_;
    const auto item = std::ranges::find(items, flex.flex_item_id_, &FlexItemConfig::id_);
    if (item == items.end() || (flex.val_ & ~flex.mask_) != 0) return {};
    rule.kind.udp_dst = item->udp_dst_port_;
    rule.kind.offset = item->offset_;
    mask.low |= flex.mask_;
    value.low |= flex.val_;
    return rule;
  }
  if (match.type_ == FlowMatchType::ECPRI) {
    const EcpriMatch& ecpri = match.ecpri_match_;
    if (ecpri.match_msg_type_) {
      mask.low |= at(0xFF, TYPE_AT);
      value.low |= at(ecpri.msg_type_, TYPE_AT);
    }
    if (ecpri.match_id_) {
      mask.low |= at(1, HAS_ID_AT) | UINT32_MAX;
      value.low |= at(1, HAS_ID_AT) | ecpri.id_;
    }
    return rule;
  }
  const auto port = [&](const PortRange& range, PortRange& entry, unsigned place, Ranged ranged) {
    entry = whole(range);
    if (single(range)) {
      mask.low |= at(WORD, place);
      value.low |= at(range.lo, place);
    } else if (entry != whole({})) {
      rule.kind.ranged = rule.kind.ranged == Ranged::NEITHER ? ranged : Ranged::BOTH;
    }
    return entry.lo <= entry.hi;
  };
  if (!port(match.udp_src_, rule.entry.src, UDP_SRC_AT, Ranged::SRC) ||
      !port(match.udp_dst_, rule.entry.dst, UDP_DST_AT, Ranged::DST))
    return {};
  if (match.ipv4_len_ != 0) {
    mask.low |= WORD;
    value.low |= match.ipv4_len_;
  }
  const auto address = [&](in_addr_t found, unsigned place) {
    if (found == INADDR_ANY) return;
    mask.high |= at(UINT32_MAX, place);
    value.high |= at(ntohl(found), place);
  };
  address(match.ipv4_src_, IPV4_SRC_AT);
  address(match.ipv4_dst_, 0);
  return rule;
}

std::optional<std::uint16_t> Lookup::covered_by(const Rule& rule) const {
  std::optional<std::uint16_t> first;
  for (const auto& [kind, slots] : added_) {
    // Rules with a subset of this rule's fields, at the same position in the packet.
    if (kind.type != rule.kind.type || kind.udp_dst != rule.kind.udp_dst ||
        kind.offset != rule.kind.offset || (kind.mask & rule.kind.mask) != kind.mask)
      continue;
    const auto slot = slots.find(rule.value & kind.mask);
    if (slot == slots.end()) continue;
    const auto wider = std::ranges::find_if(slot->second, [&](const Entry& entry) {
      return holds(entry.src, rule.entry.src) && holds(entry.dst, rule.entry.dst);
    });
    if (wider == slot->second.end()) continue;
    first = std::min(first.value_or(NO_FLOW), wider->position);
  }
  return first;
}

std::optional<std::uint16_t> Lookup::add(std::uint16_t position, const FlowMatch& match,
                                         unsigned tags, const std::vector<FlexItemConfig>& items) {
  std::optional<Rule> rule = rule_of(match, tags, items);
  if (!rule) return {};
  if (const auto first = covered_by(*rule)) return first;
  rule->entry.position = position;
  added_[rule->kind][rule->value].push_back(rule->entry);
  return {};
}

// --- Tables

void Lookup::add_intervals(Group& group, Slot& slot) {
  const auto range = [&](std::uint32_t entry) -> const PortRange& {
    const Entry& found = group.entries[entry];
    return group.kind.ranged == Ranged::SRC ? found.src : found.dst;
  };
  // Ports at which entries begin, and after which they end.
  std::map<std::uint32_t, std::vector<std::pair<bool, std::uint32_t>>> changes;
  for (std::uint32_t i = slot.begin; i < slot.end; ++i) {
    changes[range(i).lo].emplace_back(true, i);
    changes[range(i).hi + 1U].emplace_back(false, i);
  }
  slot.first_interval = static_cast<std::uint32_t>(group.intervals.size());
  std::set<std::uint32_t> open;
  const auto close = [&](std::uint32_t next) {
    const std::uint32_t entry = open.empty() ? slot.end : *open.begin();
    group.intervals.push_back({static_cast<std::uint16_t>(next - 1), entry});
  };
  for (const auto& [port, all] : changes) {
    if (port > 0) close(port);
    for (const auto& [begins, entry] : all) {
      if (begins) {
        open.insert(entry);
      } else {
        open.erase(entry);
      }
    }
  }
  slot.last_interval = static_cast<std::uint32_t>(group.intervals.size());
}

Lookup::Group Lookup::group_of(const Kind& kind, const std::map<Bits, std::vector<Entry>>& slots) {
  Group group{.kind = kind};
  const auto size = std::bit_ceil(static_cast<std::uint32_t>(2 * slots.size()));
  group.slots.resize(size);
  group.slot_mask = size - 1;
  group.hash_shift = 64U - static_cast<unsigned>(std::countr_zero(size));
  for (const auto& [value, entries] : slots) {
    std::uint32_t i = place_of(value, group.hash_shift);
    while (group.slots[i].end != 0) i = (i + 1) & group.slot_mask;
    Slot& slot = group.slots[i];
    slot.value = value;
    slot.begin = static_cast<std::uint32_t>(group.entries.size());
    group.entries.insert(group.entries.end(), entries.begin(), entries.end());
    slot.end = static_cast<std::uint32_t>(group.entries.size());
    if (kind.ranged != Ranged::NEITHER) add_intervals(group, slot);
    group.first = std::min(group.first, entries.front().position);
  }
  return group;
}

void Lookup::finish() {
  groups_.clear();
  for (const auto& [kind, slots] : added_) groups_.push_back(group_of(kind, slots));
  std::ranges::sort(groups_, {}, &Group::first);
  added_.clear();
}

// --- Packets

[[gnu::always_inline]] inline std::uint32_t Lookup::place_of(Bits bits, unsigned shift) noexcept {
  // Odd constants of the golden ratio and of MurmurHash3's finalizer. The highest bits are mixed
  // best.
  std::uint64_t mixed = bits.low ^ (bits.high * 0x9E37'79B9'7F4A'7C15U);
  mixed = (mixed ^ mixed >> 32U) * 0xFF51'AFD7'ED55'8CCDU;
  return static_cast<std::uint32_t>(mixed >> shift);
}

[[gnu::always_inline]] inline bool Lookup::bits_of(const Kind& kind, const PacketView& packet,
                                                   Bits& bits) noexcept {
  const PacketKey& key = packet.key;
  bits = {at(key.tags.vlans, TAGS_AT), 0};
  switch (kind.type) {
    case FlowMatchType::IPV4_UDP:
      if (!key.udp()) return false;
      bits.low |= at(key.udp_src, UDP_SRC_AT) | at(key.udp_dst, UDP_DST_AT) | key.ipv4_len;
      bits.high = at(key.ipv4_src, IPV4_SRC_AT) | key.ipv4_dst;
      return true;
    case FlowMatchType::ECPRI:
      if (!key.ecpri) return false;
      bits.low |= at(key.ecpri_type, TYPE_AT);
      if (key.ecpri_has_id) bits.low |= at(1, HAS_ID_AT) | key.ecpri_id;
      return true;
    case FlowMatchType::FLEX_ITEM:
      break;
  }
  const std::uint32_t place = key.payload_at + kind.offset;
  if (!key.udp() || key.udp_dst != kind.udp_dst || place + sizeof(std::uint32_t) > key.payload_end)
    return false;
  bits.low |= load_be32(packet.bytes.data() + place);
  return true;
}

[[gnu::always_inline]] inline std::uint16_t Lookup::find_in(const Group& group, Bits bits,
                                                            const PacketKey& key) noexcept {
  const Bits value = bits & group.kind.mask;
  std::uint32_t i = place_of(value, group.hash_shift);
  const auto other = [&](const Slot& slot) {
    return slot.value.low != value.low || slot.value.high != value.high;
  };
  while (group.slots[i].end != 0 && other(group.slots[i])) i = (i + 1) & group.slot_mask;
  const Slot& slot = group.slots[i];
  if (slot.end == 0) return NO_FLOW;
  if (group.kind.ranged == Ranged::NEITHER) return group.entries[slot.begin].position;
  const std::uint16_t port = group.kind.ranged == Ranged::SRC ? key.udp_src : key.udp_dst;
  const auto end = group.intervals.begin() + slot.last_interval;
  const auto interval = std::lower_bound(
      group.intervals.begin() + slot.first_interval, end, port,
      [](const Interval& each, std::uint16_t wanted) { return each.last < wanted; });
  for (std::uint32_t e = interval == end ? slot.end : interval->entry; e < slot.end; ++e) {
    const Entry& entry = group.entries[e];
    if (holds(entry.src, key.udp_src) && holds(entry.dst, key.udp_dst)) return entry.position;
  }
  return NO_FLOW;
}

std::uint16_t Lookup::find(const PacketView& packet) const noexcept {
  std::uint16_t found = NO_FLOW;
  for (const Group& group : groups_) {
    if (group.first >= found) break;
    Bits bits;
    if (!bits_of(group.kind, packet, bits)) continue;
    found = std::min(found, find_in(group, bits, packet.key));
  }
  return found;
}

}  // namespace daqiri::steering
