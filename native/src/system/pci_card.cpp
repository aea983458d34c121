#include "system/pci_card.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "system/file.h"

namespace daqiri {

namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t NETWORK = 0x02;
constexpr std::string_view VFIO = "vfio-pci";
/// Drivers of VFIO groups that leave the group usable, as in the kernel's documentation of VFIO.
constexpr std::array<std::string_view, 3> HARMLESS{"vfio-pci", "pci-stub", "pcieport"};
/// They let a card write anywhere in memory.
constexpr std::array<std::string_view, 3> UIO{"uio_pci_generic", "igb_uio", "uio_hv_generic"};
/// Of the addresses of a process: cards use the same.
constexpr unsigned ADDRESS_BITS = 47;
constexpr std::string_view RDMA = "mlx5_core";

bool any_of(const auto& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// As in sysfs: a domain of at least four digits, lower case.
std::string full_address(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::size_t WITHOUT_DOMAIN = std::string_view("05:00.0").size();
  if (text.size() == WITHOUT_DOMAIN) return "0000:" + text;
  constexpr std::size_t FULL = std::string_view("0000:05:00.0").size();
  while (text.size() > FULL && text.front() == '0') text.erase(0, 1);
  return text;
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Name of what a link leads to; empty: there is no link.
std::string target_name(const fs::path& link) {
  std::error_code error;
  return fs::read_symlink(link, error).filename().string();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::string joined_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

PciCard PciCard::at(const std::string& address, const std::string& root) {
  PciCard card;
  card.address = full_address(address);
  const fs::path devices = root + "/sys/bus/pci/devices";
  const fs::path folder = devices / card.address;
  card.device_class =
      static_cast<std::uint32_t>(std::strtoul(first_line(folder / "class").c_str(), nullptr, 16));
  card.driver = target_name(folder / "driver");
  if (const auto interfaces = names_in(folder / "net"); !interfaces.empty())
    card.interface = interfaces.front();
  const fs::path group = folder / "iommu_group";
  card.iommu_group = target_name(group);
  card.without_iommu = first_line(group / "name") == "vfio-noiommu";
  // MGAW of the capability register, of the Intel VT-d specification.
  if (const std::string cap = first_line(folder / "iommu/intel-iommu/cap"); !cap.empty())
    card.iommu_bits = ((std::strtoull(cap.c_str(), nullptr, 16) >> 16U) & 0x3FU) + 1;
  for (const std::string& other : names_in(group / "devices")) {
    const std::string driver = target_name(devices / other / "driver");
    if (other != card.address && !driver.empty() && !any_of(HARMLESS, driver))
      card.in_the_way.emplace_back(other).append(" (").append(driver).append(")");
  }
  return card;
}

std::vector<PciCard> PciCard::all(const std::string& root) {
  std::vector<PciCard> found;
  for (const std::string& each : names_in(root + "/sys/bus/pci/devices")) {
    if (PciCard card = at(each, root); card.device_class >> 16U == NETWORK)
      found.push_back(std::move(card));
  }
  return found;
}

bool PciCard::is_shared_with_kernel() const noexcept { return driver == RDMA; }

std::string PciCard::why_unusable(const std::string& root) const {
  if (device_class == 0)
    return "is not on this host's PCI bus; give an address that lspci -D lists";
  if (device_class >> 16U != NETWORK) return "is not a network card; give the address of one";
  if (is_shared_with_kernel()) return {};
  const std::string bind = "driverctl set-override " + address + " vfio-pci";
  if (driver.empty()) return "has no driver; bind it to vfio-pci: " + bind;
  if (any_of(UIO, driver)) {
    return "is bound to '" + driver +
           "', with which a card can write anywhere in memory; bind it to vfio-pci: " + bind;
  }
  if (driver != VFIO) {
    const std::string with = interface.empty() ? "" : ", as network interface '" + interface + "'";
    const std::string instead =
        interface.empty() ? "" : ", or use engine 'packet' with address: " + interface;
    return "belongs to the kernel's driver '" + driver + "'" + with +
           "; take it from the kernel: " + bind + instead;
  }
  if (iommu_group.empty() || without_iommu) {
    return "has no IOMMU, without which a card can write anywhere in memory; turn it on in the "
           "firmware's setup (VT-d, AMD-Vi) and with intel_iommu=on on the kernel's command line";
  }
  if (iommu_bits != 0 && iommu_bits < ADDRESS_BITS) {
    return "is behind an IOMMU for addresses of " + std::to_string(iommu_bits) +
           " bits, and those of a process have " + std::to_string(ADDRESS_BITS) +
           "; use another host (QEMU: -device intel-iommu,aw-bits=48)";
  }
  if (!in_the_way.empty()) {
    return "shares IOMMU group " + iommu_group + " with " + joined_names(in_the_way) +
           "; bind these to vfio-pci, too, or put the card into another slot";
  }
  const std::string group = "/dev/vfio/" + iommu_group;
  if (::access((root + group).c_str(), R_OK | W_OK) != 0) {
    return "is not for this user, who may not open " + group + "; as root: chown $USER " + group;
  }
  return {};
}

std::string PciCard::why_taken() const {
  if (driver != VFIO || iommu_group.empty()) return {};
  const std::string group = "/dev/vfio/" + iommu_group;
  // An IOMMU group has one process at a time.
  if (const File opened(::open(group.c_str(), O_RDWR | O_CLOEXEC)); opened.is_open()) return {};
  if (errno != EBUSY) return {};
  return "is in use by another process, which has " + group + "; end that process (fuser -v " +
         group + ")";
}

}  // namespace daqiri
