/// Network cards on the PCI bus, and whether a program may drive them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace daqiri {

/// A card as the kernel describes it in sysfs.
struct PciCard {
  /// "0000:05:00.0".
  std::string address;
  /// Class of the device, as in "0x020000"; 0: there is no such device.
  std::uint32_t device_class{0};
  /// Kernel driver; empty: none.
  std::string driver;
  /// Network interface of the kernel; empty: none.
  std::string interface;
  /// Number of the IOMMU group; empty: none.
  std::string iommu_group;
  /// Whether VFIO gives the group access to all memory, since there is no IOMMU.
  bool without_iommu{false};
  /// Bits of the addresses that the IOMMU translates, as Intel's tell; 0: not known.
  unsigned iommu_bits{0};
  /// Other devices of the group that keep it from programs, each with its driver:
  /// "0000:05:00.1 (igb)".
  std::vector<std::string> in_the_way;

  /// The card at an address in a form of the configuration: "05:00.0", "0000:05:00.0". `root`:
  /// folder with `sys` and `dev`.
  static PciCard at(const std::string& address, const std::string& root = {});

  /// All network cards of the host, in the order of their addresses.
  static std::vector<PciCard> all(const std::string& root = {});

  /// Why a program of this user cannot drive it (by VFIO, or by its RDMA driver), and what to do:
  /// "has no driver; ...". Empty: it can, as far as that is known without opening it.
  [[nodiscard]] std::string why_unusable(const std::string& root = {}) const;
  /// Why VFIO gives it to no other process now, and what to do; for a card that cannot be opened.
  /// Empty: it does, or it has no part in it.
  [[nodiscard]] std::string why_taken() const;
  /// Whether the kernel keeps the card, and lets programs use it by its RDMA driver.
  [[nodiscard]] bool is_shared_with_kernel() const noexcept;
};

}  // namespace daqiri
