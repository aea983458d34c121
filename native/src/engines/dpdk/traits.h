/// What engine dpdk declares, also where its module is not installed: configurations and hosts are
/// checked by it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "daqiri/config.h"
#include "engine/traits.h"
#include "memory/hugepages.h"
#include "memory/region.h"

namespace daqiri::dpdk {

/// Drivers that the engine treats in ways of their own.
inline constexpr std::string_view AF_PACKET_DRIVER = "net_af_packet";
inline constexpr std::string_view MEMIF_DRIVER = "net_memif";
inline constexpr std::string_view PCAP_DRIVER = "net_pcap";
inline constexpr std::string_view TAP_DRIVER = "net_tap";

/// Without hugepages, DPDK reserves this much address space for its own objects (rings, headers of
/// packets), once; pages become memory when they are used.
inline constexpr unsigned WITHOUT_HUGEPAGES_MIB = 512;
/// With less than this in free hugepages, it uses none.
inline constexpr std::uint64_t FEWEST_HUGEPAGE_BYTES = std::uint64_t{64} << 20U;
inline bool uses_hugepages(const memory::Hugepages& pages) {
  return pages.available * pages.size >= FEWEST_HUGEPAGE_BYTES;
}
/// Of each buffer, before its data (RTE_PKTMBUF_HEADROOM).
inline constexpr std::size_t HEADROOM = 128;

/// Whether an address of the configuration is that of a virtual device: "net_ring0".
inline bool is_virtual(const InterfaceConfig& interface) {
  return interface.address_.starts_with("net_");
}

/// Of the drivers that are devices of the kernel, too.
inline constexpr Privilege PRIVILEGES[] = {
    {.capability = "CAP_NET_ADMIN",
     .use = "a network interface of its own (net_tap)",
     .when = [](const InterfaceConfig& each) { return each.address_.starts_with(TAP_DRIVER); }},
    {.capability = "CAP_NET_RAW",
     .use = "packet sockets (net_af_packet)",
     .when = [](const InterfaceConfig& each) {
       return each.address_.starts_with(AF_PACKET_DRIVER);
     }}};

/// VFIO locks what a card may write to: regions, once for all cards, and DPDK's own memory, of
/// which only that without hugepages is known.
inline KernelMemory locked_memory(const NetworkConfig& config, const InterfaceConfig& interface) {
  const auto is_card = [](const InterfaceConfig& each) { return !is_virtual(each); };
  const auto first = std::ranges::find_if(config.ifs_, is_card);
  if (first == config.ifs_.end() || &*first != &interface) return {};
  KernelMemory asked;
  if (!uses_hugepages(memory::Hugepages::now()))
    asked.locked = std::uint64_t{WITHOUT_HUGEPAGES_MIB} << 20U;
  memory::RegionNeeds needs;
  needs.headroom = HEADROOM;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (const auto& [name, region] : config.mrs_) {
    if (holds_packets(config, name))
      asked.locked += memory::RegionExtent::of(region, needs, page).bytes;
  }
  return asked;
}

inline constexpr EngineTraits TRAITS{.name = "dpdk",
                                     .addresses = AddressForm::PCI_OR_VIRTUAL_DEVICE,
                                     .kernel_bypass = true,
                                     .polls_without_pause = true,
                                     .rx_descriptors = 8192,
                                     .hardware_timestamps = true,
                                     .timed_send = true,
                                     .rss = true,
                                     .transforms = true,
                                     .dynamic_flows = true,
                                     .flex_items = true,
                                     .ecpri = true,
                                     .direct_mode = true,
                                     .reads_together = true,
                                     .privileges = PRIVILEGES,
                                     .virtual_device = is_virtual,
                                     .kernel_memory = locked_memory};

inline bool is_chosen(const NetworkConfig& config) {
  return config.common_.loopback_ == LoopbackType::DISABLED &&
         config.common_.engine_type == EngineType::DPDK;
}

}  // namespace daqiri::dpdk
