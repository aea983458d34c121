/// Devices of DPDK: network cards, and virtual devices.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "daqiri/config.h"
#include "engines/dpdk/dma.h"
#include "system/file.h"

namespace daqiri::dpdk {

/// A device that belongs to DPDK as long as this object exists.
class Device {
 public:
  /// `interface.address_`: PCI address, or virtual device with its arguments. Throws Error.
  explicit Device(const InterfaceConfig& interface);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  /// Let the device read and write the memory of a region, if it does so by itself. Throws Error.
  /// `device`: this one, as DPDK names it in its information.
  void map(rte_device& device, const memory::MemoryRegion& region);
  /// Let the device write the second pieces of packets to a region on a GPU. Returns why it cannot,
  /// for this interface; empty: it can.
  [[nodiscard]] std::string write_to_gpu(const NetworkConfig& config,
                                         const InterfaceConfig& interface,
                                         const memory::RegionExtent& on_gpu,
                                         const std::string& region);
  /// Undo the latest `write_to_gpu`.
  void leave_gpu() noexcept { mappings_.pop_back(); }

  /// DPDK's name.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// A lock with which a device is destroyed without a wait for others that come or go. Not owned:
  /// some do.
  [[nodiscard]] static std::unique_lock<std::recursive_mutex> try_lock_all() noexcept;

  /// DPDK's number of the port.
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Throws Error with the reason why it did not start, if that is known.
  void explain_failed_start(const InterfaceConfig& interface) const;
  /// False: it is virtual.
  [[nodiscard]] bool is_card() const noexcept;
  /// Whether each of its receive queues gets what the transmit queue of the same number sends.
  [[nodiscard]] bool loops() const noexcept { return name_.starts_with("net_ring"); }

 private:
  void add(const InterfaceConfig& interface);
  void remove() noexcept;

  /// Keeps other devices from what it must not share with them.
  File claim_;
  std::string name_;
  /// DPDK's name of the bus.
  const char* bus_;
  /// Whether the kernel keeps the card.
  bool shared_with_kernel_{false};
  std::uint16_t port_{0};
  std::deque<DmaMapping> mappings_;
};

}  // namespace daqiri::dpdk
