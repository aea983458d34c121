#include "engines/dpdk/device.h"

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

#include "daqiri/error.h"
#include "engines/dpdk/eal.h"
#include "engines/dpdk/traits.h"
#include "system/log.h"
#include "system/pci_card.h"

namespace daqiri::dpdk {

namespace {

constexpr int MOST_RINGS = 16;
constexpr const char* VIRTUAL_BUS = "vdev";
constexpr const char* PCI_BUS = "pci";

/// Held while devices come and go.
std::mutex devices_mutex;
/// Names of the devices that belong to DPDK, which says nothing when one is added twice.
std::set<std::string> devices;

[[noreturn]] void refuse(const InterfaceConfig& interface, const std::string& what,
                         const std::string& fix) {
  throw Error(Status::INVALID_PARAMETER, "interface '" + interface.name_ + "': device '" +
                                             interface.address_ + "' " + what + "; " + fix);
}

}  // namespace

DeviceName DeviceName::of(const InterfaceConfig& interface) {
  const std::string& address = interface.address_;
  if (!is_virtual(interface)) return {PciCard::at(address).address, {}};
  const std::size_t comma = std::min(address.find(','), address.size());
  return {address.substr(0, comma), address.substr(std::min(comma + 1, address.size()))};
}

bool DeviceName::is_of(std::string_view driver) const noexcept { return name.starts_with(driver); }

std::string_view DeviceName::value_of(std::string_view key) const noexcept {
  std::string_view rest = arguments;
  while (!rest.empty()) {
    const std::string_view each = rest.substr(0, rest.find(','));
    const std::size_t equals = each.find('=');
    if (equals != std::string_view::npos && each.substr(0, equals) == key)
      return each.substr(equals + 1);
    rest.remove_prefix(std::min(each.size() + 1, rest.size()));
  }
  return {};
}

Device::Device(const InterfaceConfig& interface) {
  const std::lock_guard lock(devices_mutex);
  add(interface);
  devices.insert(name_);
  if (rte_eth_dev_get_port_by_name(name_.c_str(), &port_) == 0) return;
  remove();
  refuse(interface, "is not a network device", "give one that is");
}

void Device::add(const InterfaceConfig& interface) {
  const DeviceName device = DeviceName::of(interface);
  name_ = device.name;
  const char* fix =
      "the reason, and dmesg, tell what it needs; a user who is not root needs locked memory for "
      "regions and for DPDK's own objects (ulimit -l); on some systems each driver is a package of "
      "its own (librte-net-mlx5-23)";
  if (is_virtual(interface)) {
    bus_ = VIRTUAL_BUS;
    fix =
        "accepted are DPDK's virtual devices and their arguments, such as net_ring0, "
        "net_tap0,iface=dtap0 or net_af_packet0,iface=eth0; on some systems each driver is a "
        "package of its own (librte-net-tap23)";
  } else {
    bus_ = PCI_BUS;
    shared_with_kernel_ = PciCard::at(name_).is_shared_with_kernel();
  }
  if (devices.contains(name_)) {
    refuse(interface, "is in use by another interface of this process",
           bus_ == PCI_BUS ? "close that engine first" : "give it another number");
  }
  const int error = rte_eal_hotplug_add(bus_, name_.c_str(), device.arguments.c_str());
  // DPDK's reason is that it does not know the bus of such a name.
  if (error == -EFAULT && bus_ == VIRTUAL_BUS) {
    refuse(interface, "cannot be opened: DPDK has no driver of this name here",
           "accepted are net_af_packet, net_memif, net_null, net_ring, net_tap and DPDK's other "
           "virtual devices, with a number: net_ring0; on some systems each driver is a package of "
           "its own (librte-net-tap23)");
  }
  if (error != 0) refuse(interface, "cannot be opened: " + Reports::reason(error), fix);
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

bool Device::is_card() const noexcept { return bus_ == PCI_BUS; }

void Device::map(rte_device& device, const memory::MemoryRegion& region) {
  if (is_card()) mappings_.emplace_back(device, !shared_with_kernel_, region);
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
