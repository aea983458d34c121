// Instead of DPDK's own functions: a device counts by name, as mlx5 does.
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace {

constexpr std::array<std::string_view, 4> NAMES{"rx_good_packets", "rx_phy_crc_errors",
                                                "rx_phy_discard_packets", "tx_good_packets"};
/// By the number of the name.
std::array<std::uint64_t, NAMES.size()> counters{1000, 5, 70, 1000};

}  // namespace

extern "C" {

int rte_eth_xstats_get_id_by_name(std::uint16_t, const char* name, std::uint64_t* id) {
  for (std::size_t i = 0; i < NAMES.size(); ++i) {
    if (NAMES[i] != name) continue;
    *id = i;
    return 0;
  }
  return -EINVAL;
}

int rte_eth_xstats_get_by_id(std::uint16_t, const std::uint64_t* ids, std::uint64_t* values,
                             unsigned count) {
  for (unsigned i = 0; i < count; ++i) values[i] = counters[ids[i]];
  return static_cast<int>(count);
}

void lose_by_name(std::uint64_t discarded, std::uint64_t damaged) {
  counters[2] += discarded;
  counters[1] += damaged;
}
}
