#include "net/ethtool.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <cstddef>
#include <cstring>
#include <string_view>

namespace daqiri {

namespace {

/// The ioctl's structure `T` with `count` elements of `element` bytes after it. The kernel writes
/// as many as the driver has, which may have become more since they were counted; hence the spare
/// ones.
template <typename T>
class EthtoolBuffer {
 public:
  EthtoolBuffer(std::uint32_t command, std::size_t count, std::size_t element)
      : words_((sizeof(T) + (2 * count + 64) * element) / sizeof(std::uint64_t) + 1) {
    head().cmd = command;
  }
  T& head() noexcept { return *reinterpret_cast<T*>(words_.data()); }
  [[nodiscard]] const char* data() const noexcept {
    return reinterpret_cast<const char*>(words_.data()) + sizeof(T);
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace

Ethtool::Ethtool(int socket, const char* interface) noexcept : socket_(socket) {
  std::string_view(interface).copy(request_.ifr_name, IFNAMSIZ - 1);
}

bool Ethtool::ask(void* data) noexcept {
  request_.ifr_data = static_cast<char*>(data);
  return ioctl(socket_, SIOCETHTOOL, &request_) == 0;
}

std::uint32_t Ethtool::count(std::uint32_t set) {
  EthtoolBuffer<ethtool_sset_info> info(ETHTOOL_GSSET_INFO, 1, sizeof(std::uint32_t));
  info.head().sset_mask = std::uint64_t{1} << set;
  std::uint32_t count = 0;
  if (!ask(&info.head()) || info.head().sset_mask == 0) return 0;
  std::memcpy(&count, info.data(), sizeof count);
  return count;
}

std::vector<std::string> Ethtool::names(std::uint32_t set, std::uint32_t count) {
  EthtoolBuffer<ethtool_gstrings> strings(ETHTOOL_GSTRINGS, count, ETH_GSTRING_LEN);
  strings.head().string_set = set;
  strings.head().len = count;
  if (!ask(&strings.head()) || strings.head().len != count) return {};
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < count; ++i) {
    const char* name = strings.data() + std::size_t{i} * ETH_GSTRING_LEN;
    names.emplace_back(name, strnlen(name, ETH_GSTRING_LEN));
  }
  return names;
}

std::vector<std::uint64_t> Ethtool::statistics(std::uint32_t count) {
  EthtoolBuffer<ethtool_stats> stats(ETHTOOL_GSTATS, count, sizeof(std::uint64_t));
  stats.head().n_stats = count;
  if (!ask(&stats.head()) || stats.head().n_stats != count) return {};
  std::vector<std::uint64_t> values(count);
  std::memcpy(values.data(), stats.data(), count * sizeof(std::uint64_t));
  return values;
}

Ethtool::Timestamping Ethtool::timestamping() noexcept {
  ethtool_ts_info info{};
  info.cmd = ETHTOOL_GET_TS_INFO;
  if (!ask(&info)) return {};
  return {info.so_timestamping, info.rx_filters, info.phc_index};
}

std::vector<std::string> Ethtool::features() {
  const std::uint32_t number = count(ETH_SS_FEATURES);
  const std::vector<std::string> all = names(ETH_SS_FEATURES, number);
  const std::uint32_t blocks = (number + 31) / 32;
  EthtoolBuffer<ethtool_gfeatures> buffer(ETHTOOL_GFEATURES, blocks,
                                          sizeof(ethtool_get_features_block));
  buffer.head().size = blocks;
  if (all.empty() || !ask(&buffer.head())) return {};
  std::vector<std::string> on;
  for (std::uint32_t i = 0; i < number; ++i) {
    ethtool_get_features_block block{};
    std::memcpy(&block, buffer.data() + std::size_t{i / 32} * sizeof block, sizeof block);
    if ((block.active & (1U << i % 32)) != 0) on.push_back(all[i]);
  }
  return on;
}

}  // namespace daqiri
