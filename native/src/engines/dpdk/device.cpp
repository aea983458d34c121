#include "engines/dpdk/device.h"

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_ring.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>

#include "daqiri/error.h"
#include "engines/dpdk/eal.h"
#include "engines/dpdk/pieces.h"
#include "engines/dpdk/traits.h"
#include "engines/dpdk/virtual_device.h"
#include "system/log.h"
#include "system/pci_card.h"

namespace daqiri::dpdk {

namespace {

constexpr int MOST_RINGS = 16;
constexpr const char* VIRTUAL_BUS = "vdev";
constexpr const char* PCI_BUS = "pci";
/// Of mlx5: cards before ConnectX-7 keep launch times by a queue that counts its clock, in steps of
/// 500 ns. With it, a card whose clock has real time (REAL_TIME_CLOCK_ENABLE) tells that clock,
/// with which it stamps packets; without, another one.
constexpr const char* WITH_CLOCK_QUEUE = "tx_pp=500";

/// Held while devices come and go.
std::recursive_mutex devices_mutex;
/// Names of the devices that belong to DPDK, which says nothing when one is added twice.
std::set<std::string> devices;

/// Whether VFIO has given this process the IOMMU group of another card.
bool has_group_of(const PciCard& card) {
  return std::ranges::any_of(devices, [&](const std::string& name) {
    return name != card.address && PciCard::at(name).iommu_group == card.iommu_group;
  });
}

}  // namespace

Device::Device(const InterfaceConfig& interface) {
  const std::lock_guard lock(devices_mutex);
  add(interface);
  devices.insert(name_);
  if (rte_eth_dev_get_port_by_name(name_.c_str(), &port_) == 0) return;
  remove();
  refuse(interface, "is not a network device", "give one that is");
}

void Device::add(const InterfaceConfig& interface) {
  const bool is_card = !is_virtual(interface);
  const VirtualDevice device(interface);
  const PciCard card = is_card ? PciCard::at(interface.address_) : PciCard{};
  bus_ = is_card ? PCI_BUS : VIRTUAL_BUS;
  name_ = is_card ? card.address : device.name();
  shared_with_kernel_ = is_card && card.is_shared_with_kernel();
  if (devices.contains(name_)) {
    refuse(interface, "is in use by another interface of this process",
           is_card ? "close that engine first" : "give it another number");
  }
  claim_ = device.claim();
  // A card whose driver has no such queue, or whose firmware does not allow it, is opened without.
  if (shared_with_kernel_ && (interface.rx_.hardware_timestamps_ || interface.tx_.accurate_send_) &&
      rte_eal_hotplug_add(bus_, name_.c_str(), WITH_CLOCK_QUEUE) == 0)
    return;
  const int error =
      rte_eal_hotplug_add(bus_, name_.c_str(), is_card ? "" : device.arguments().c_str());
  if (error == 0) return;
  // DPDK's reason is that it does not know the bus of such a name.
  if (error == -EFAULT && !is_card) {
    refuse(interface, "cannot be opened: DPDK has no driver of this name here",
           "accepted are net_af_packet, net_memif, net_null, net_ring, net_tap and DPDK's other "
           "virtual devices, with a number: net_ring0; on some systems each driver is a package of "
           "its own (librte-net-tap23)");
  }
  const std::string what = "cannot be opened: " + Reports::reason(error);
  if (!is_card) {
    refuse(interface, what,
           std::string("accepted are the arguments of DPDK's virtual devices, such as "
                       "net_tap0,iface=dtap0 or net_af_packet0,iface=eth0") +
               (device.is(AF_PACKET_DRIVER)
                    ? "; its rings (2 x qpairs x framecnt x framesz bytes) are locked memory, of "
                      "which a user who is not root has little (ulimit -l)"
                    : ""));
  }
  if (const std::string taken = card.why_taken(); !taken.empty() && !has_group_of(card))
    throw Error(Status::NOT_SUPPORTED, device_of(interface) + taken);
  refuse(interface, what,
         "the reason, and dmesg, tell what it needs; a user who is not root needs locked memory "
         "for regions and for DPDK's own objects (ulimit -l); on some systems each driver is a "
         "package of its own (librte-net-mlx5-23)");
}

Device::~Device() {
  if (!owns_eal()) return;
  const std::lock_guard lock(devices_mutex);
  const auto told = [this](const char* what, int error) {
    if (error != 0)
      log(LogLevel::WARN, "device '" + name_ + "' does not " + what + ": " + std::strerror(-error));
  };
  told("stop", rte_eth_dev_stop(port_));
  told("close", rte_eth_dev_close(port_));
  mappings_.clear();
  remove();
}

std::unique_lock<std::recursive_mutex> Device::try_lock_all() noexcept {
  return std::unique_lock(devices_mutex, std::try_to_lock);
}

void Device::explain_failed_start(const InterfaceConfig& interface) const {
  if (!is_card()) VirtualDevice(interface).explain_failed_start();
}

bool Device::is_card() const noexcept { return bus_ == PCI_BUS; }

void Device::map(rte_device& device, const memory::MemoryRegion& region) {
  if (!is_card()) return;
  mappings_.emplace_back(device, !shared_with_kernel_, region.extent(), DmaMapping::Memory::HOST,
                         region.name());
}

std::string Device::write_to_gpu(const NetworkConfig& config, const InterfaceConfig& interface,
                                 const memory::RegionExtent& on_gpu, const std::string& region) {
  rte_eth_dev_info info{};
  if (const int error = rte_eth_dev_info_get(port_, &info); error != 0)
    return "the device does not tell its features: " + Reports::reason(error);
  if (const std::string why = why_not_split(config, interface, info); !why.empty()) return why;
  // Drivers of others may copy with the CPU.
  if (std::string_view(rte_bus_name(rte_dev_bus(info.device))) != PCI_BUS)
    return "the device is no card";
  try {
    mappings_.emplace_back(*info.device, !shared_with_kernel_, on_gpu, DmaMapping::Memory::GPU,
                           region);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void Device::remove() noexcept {
  // Of its 16 rings, a net_ring frees those that were used; with the others left, it cannot be made
  // again as it was.
  const auto free_rings = [this] {
    for (int i = 0; i < MOST_RINGS; ++i) {
      std::array<char, RTE_RING_NAMESIZE> text{};
      std::snprintf(text.data(), text.size(), "ETH_RXTX%d_%s", i, name_.c_str());
      rte_ring_free(rte_ring_lookup(text.data()));
    }
  };
  if (const int error = rte_eal_hotplug_remove(bus_, name_.c_str()); error != 0) {
    log(LogLevel::WARN, "DPDK does not give device '" + name_ + "' back: " + std::strerror(-error));
    // Its name stays known: adding it again would give the old one.
    return;
  }
  if (loops()) free_rings();
  devices.erase(name_);
}

}  // namespace daqiri::dpdk
