/// What engine dpdk declares, also where its module is not installed: configurations and hosts are
/// checked by it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daqiri/config.h"
#include "engine/traits.h"

namespace daqiri::dpdk {

/// Without hugepages, DPDK reserves this much address space for its own objects (rings, headers of
/// packets), once; pages become memory when they are used.
inline constexpr unsigned WITHOUT_HUGEPAGES_MIB = 512;

/// Whether an address of the configuration is that of a virtual device: "net_ring0".
inline bool is_virtual(const InterfaceConfig& interface) {
  return interface.address_.starts_with("net_");
}

/// Of the drivers that are devices of the kernel, too.
inline constexpr Privilege PRIVILEGES[] = {
    {.capability = "CAP_NET_ADMIN",
     .use = "a network interface of its own (net_tap)",
     .when = [](const InterfaceConfig& each) { return each.address_.starts_with("net_tap"); }},
    {.capability = "CAP_NET_RAW",
     .use = "packet sockets (net_af_packet)",
     .when = [](const InterfaceConfig& each) {
       return each.address_.starts_with("net_af_packet");
     }}};

/// VFIO locks what a card may write to: regions, once for all cards, and DPDK's own memory.
inline KernelMemory locked_memory(const NetworkConfig& config, const InterfaceConfig& interface) {
  const auto is_card = [](const InterfaceConfig& each) { return !is_virtual(each); };
  const auto first = std::ranges::find_if(config.ifs_, is_card);
  if (first == config.ifs_.end() || &*first != &interface) return {};
  KernelMemory asked;
  asked.locked = std::uint64_t{WITHOUT_HUGEPAGES_MIB} << 20U;
  for (const auto& [name, region] : config.mrs_) {
    if (holds_packets(config, name)) asked.locked += region.num_bufs_ * region.buf_size_;
  }
  return asked;
}

inline constexpr EngineTraits TRAITS{.name = "dpdk",
                                     .addresses = AddressForm::PCI_OR_VIRTUAL_DEVICE,
                                     .kernel_bypass = true,
                                     .polls_without_pause = true,
                                     .rx_descriptors = 8192,
                                     .rss = true,
                                     .transforms = true,
                                     .dynamic_flows = true,
                                     .flex_items = true,
                                     .ecpri = true,
                                     .privileges = PRIVILEGES,
                                     .virtual_device = is_virtual,
                                     .kernel_memory = locked_memory};

inline bool is_chosen(const NetworkConfig& config) {
  return config.common_.loopback_ == LoopbackType::DISABLED &&
         config.common_.engine_type == EngineType::DPDK;
}

}  // namespace daqiri::dpdk
