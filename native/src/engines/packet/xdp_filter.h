/// Computes which frames an XDP program must receive for the flows of an interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "daqiri/config.h"

namespace daqiri::packet {

/// Takes every frame that matches a flow, and as few others as a short program can distinguish: the
/// classifier decides about the frames taken, and the kernel keeps the rest.
///
/// Flows that restrict the same fields form a group. A frame is taken if, for one of the groups,
/// each of these fields has a value of any flow in the group. For example, for the flows {host A,
/// port 1} and {host B, port 2}, host A with port 2 is taken, too. eCPRI messages and tunnels are
/// taken regardless of their contents.
class XdpFilter {
 public:
  enum class Field : std::uint8_t { UDP_SRC, UDP_DST, IPV4_LEN, IPV4_SRC, IPV4_DST };
  static constexpr std::size_t NUM_FIELDS = 5;
  /// Size of the table for a 16-bit field of a group: one bit per value.
  static constexpr std::uint32_t TABLE_BYTES = 8192;
  static constexpr std::uint32_t NO_TABLE = UINT32_MAX;
  /// Any number of VLAN tags.
  static constexpr int ANY_TAGS = -1;

  /// Common properties of the flows in a group.
  struct Group {
    /// Number of VLAN tags before IP and UDP, without priority tags.
    int tags{0};
    /// By Field: position of its table; for addresses, the first part of their keys in `addresses`.
    /// NO_TABLE: the field is not restricted.
    std::uint32_t tables[NUM_FIELDS]{};
  };

  /// Takes all frames.
  XdpFilter() = default;
  /// Takes all frames unless flows are isolated.
  explicit XdpFilter(const RxConfig& config);

  [[nodiscard]] bool takes_all() const noexcept { return all_; }
  /// Whether it takes the frames of all flows that could be added later.
  [[nodiscard]] bool takes_any_flow() const noexcept { return all_ || any_flow_; }
  [[nodiscard]] const std::vector<Group>& groups() const noexcept { return groups_; }
  /// Concatenated tables, TABLE_BYTES each.
  [[nodiscard]] const std::vector<std::uint8_t>& tables() const noexcept { return tables_; }
  /// Table and address, in network byte order.
  [[nodiscard]] const std::vector<std::pair<std::uint32_t, std::uint32_t>>& addresses()
      const noexcept {
    return addresses_;
  }
  /// Numbers of VLAN tags for which eCPRI messages are taken.
  [[nodiscard]] const std::vector<int>& ecpri() const noexcept { return ecpri_; }
  [[nodiscard]] bool takes_gre() const noexcept { return gre_; }

 private:
  /// `fields`: bits of the restricted fields.
  [[nodiscard]] Group& group_of(int tags, unsigned fields);
  void add(const FlowConfig& flow, const std::vector<FlexItemConfig>& items);
  void add_udp(int tags, const FlowMatch& match);
  /// Set the bits of values [first, last] in a field's table.
  void allow(std::uint32_t table, std::uint32_t first, std::uint32_t last);

  bool all_{true};
  bool any_flow_{false};
  bool gre_{false};
  std::vector<int> ecpri_;
  std::vector<Group> groups_;
  std::map<std::pair<int, unsigned>, std::size_t> positions_;
  std::uint32_t num_tables_{0};
  std::vector<std::uint8_t> tables_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> addresses_;
};

}  // namespace daqiri::packet
