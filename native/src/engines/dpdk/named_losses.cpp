#include "engines/dpdk/named_losses.h"

#include <rte_ethdev.h>

namespace daqiri::dpdk {

namespace {

struct Name {
  const char* name;
  std::uint64_t NamedLosses::Counts::* kind;
};

/// Of mlx5, whose `imissed` counts packets for which a queue had no buffer (out_of_buffer), and
/// whose `ierrors` none of these. Other drivers have in both what they count by name.
constexpr Name NAMES[] = {
    // The card received faster than PCIe and the host took it.
    {.name = "rx_phy_discard_packets", .kind = &NamedLosses::Counts::card},
    {.name = "rx_phy_crc_errors", .kind = &NamedLosses::Counts::errors},
    {.name = "rx_phy_in_range_len_errors", .kind = &NamedLosses::Counts::errors},
};

}  // namespace

void NamedLosses::find(std::uint16_t device) noexcept {
  static_assert(std::size(NAMES) == MOST);
  count_ = 0;
  for (const Name& each : NAMES) {
    if (rte_eth_xstats_get_id_by_name(device, each.name, &ids_[count_]) != 0) continue;
    kinds_[count_] = each.kind;
    ++count_;
  }
}

NamedLosses::Counts NamedLosses::read(std::uint16_t device) const noexcept {
  Counts counts;
  std::array<std::uint64_t, MOST> values{};
  if (count_ == 0 || rte_eth_xstats_get_by_id(device, ids_.data(), values.data(), count_) !=
                         static_cast<int>(count_))
    return counts;
  for (unsigned i = 0; i < count_; ++i) counts.*kinds_[i] += values[i];
  return counts;
}

}  // namespace daqiri::dpdk
