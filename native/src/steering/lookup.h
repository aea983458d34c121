/// Finds the first rule that matches a packet. The cost does not grow with the number of rules.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "daqiri/flows.h"
#include "steering/packet_key.h"

namespace daqiri::steering {

/// Position if no rule matches.
inline constexpr std::uint16_t NO_FLOW = std::numeric_limits<std::uint16_t>::max();

/// Rules are grouped by the fields that they restrict. A group is a hash table of the values of
/// these fields. Port ranges are in its entries, divided into intervals that a binary search finds.
/// A packet thus costs one probe per group, and there are few groups; only rules with ranges of
/// both ports are tried one by one. Bytes are compared at the offset and with the mask of a group.
///
/// Rules are added in file order; then `finish` builds the tables.
class Lookup {
 public:
  /// `match`: addresses in network byte order, as configured. A rule matches packets with exactly
  /// `tags` VLAN tags, besides priority tags. `items`: the flex items of the interface.
  ///
  /// Returns the position of the first earlier rule that matches all packets of this one; this one
  /// is then left out.
  std::optional<std::uint16_t> add(std::uint16_t position, const FlowMatch& match, unsigned tags,
                                   const std::vector<FlexItemConfig>& items);
  void finish();

  /// Lowest position of a matching rule; NO_FLOW: none.
  [[nodiscard]] std::uint16_t find(const PacketView& packet) const noexcept;
  [[nodiscard]] bool empty() const noexcept { return groups_.empty(); }

 private:
  /// Concatenated values of fields, or a mask of the bits to compare.
  struct Bits {
    std::uint64_t low{0};
    std::uint64_t high{0};

    auto operator<=>(const Bits&) const = default;
    Bits operator&(const Bits& mask) const noexcept { return {low & mask.low, high & mask.high}; }
  };
  /// A rule in a group: its port ranges, including any port and single ports.
  struct Entry {
    PortRange src;
    PortRange dst;
    std::uint16_t position;
  };
  /// Ports up to `last`, and the first entry of a slot that contains them.
  struct Interval {
    std::uint16_t last;
    std::uint32_t entry;
  };
  /// Entries with the same values; none: the slot is free.
  struct Slot {
    Bits value;
    std::uint32_t begin{0};
    std::uint32_t end{0};
    std::uint32_t first_interval{0};
    std::uint32_t last_interval{0};
  };
  enum class Ranged : std::uint8_t { NEITHER, SRC, DST, BOTH };
  /// Common properties of the rules in a group.
  struct Kind {
    FlowMatchType type{FlowMatchType::IPV4_UDP};
    Ranged ranged{Ranged::NEITHER};
    /// For a flex item.
    std::uint16_t udp_dst{0};
    std::uint16_t offset{0};
    Bits mask{};

    auto operator<=>(const Kind&) const = default;
  };
  struct Group {
    Kind kind;
    /// Lowest position in the group.
    std::uint16_t first{NO_FLOW};
    /// Number of slots, a power of two, minus 1; and the shift of the hash.
    std::uint32_t slot_mask{0};
    unsigned hash_shift{0};
    std::vector<Slot> slots{};
    std::vector<Entry> entries{};
    std::vector<Interval> intervals{};
  };
  /// The group of a rule, and its values there.
  struct Rule {
    Kind kind;
    Bits value;
    Entry entry;
  };

  static std::optional<Rule> rule_of(const FlowMatch& match, unsigned tags,
                                     const std::vector<FlexItemConfig>& items);
  [[nodiscard]] std::optional<std::uint16_t> covered_by(const Rule& rule) const;
  static Group group_of(const Kind& kind, const std::map<Bits, std::vector<Entry>>& slots);
  static void add_intervals(Group& group, Slot& slot);
  static bool bits_of(const Kind& kind, const PacketView& packet, Bits& bits) noexcept;
  static std::uint32_t place_of(Bits bits, unsigned shift) noexcept;
  static std::uint16_t find_in(const Group& group, Bits bits, const PacketKey& key) noexcept;

  std::map<Kind, std::map<Bits, std::vector<Entry>>> added_;
  /// Sorted by `first`.
  std::vector<Group> groups_;
};

}  // namespace daqiri::steering
