#include "engines/dpdk/removal.h"

#include <rte_alarm.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "engines/dpdk/eal.h"

namespace daqiri::dpdk {

namespace {

/// A pass of a poller takes less, mostly.
constexpr std::uint64_t AGAIN_US = 1000;

/// By DPDK's name of the device. Held while one is told.
std::mutex watches_mutex;
std::map<std::string, RemovalWatch*, std::less<>> watches;

}  // namespace

RemovalWatch::RemovalWatch(std::string device, std::uint16_t port, Removable& told)
    : device_(std::move(device)), port_(port), told_(told) {
  // Of vfio: the kernel has a device only to itself once all programs have given it back, and asks
  // them to (VFIO_PCI_REQ_IRQ_INDEX). DPDK's driver of the bus hears that without its monitor of
  // devices and its handler of SIGBUS, which would be one for the whole process. One callback for
  // all devices, which stays: older DPDK 22.11 removes those of other devices with one.
  static const bool registered =
      rte_dev_event_callback_register(nullptr, on_device_event, nullptr) == 0;
  if (registered &&
      // Of drivers that share the card with the kernel's (mlx5).
      rte_eth_dev_callback_register(port_, RTE_ETH_EVENT_INTR_RMV, on_port_event, this) == 0) {
    const std::lock_guard lock(watches_mutex);
    watches.insert_or_assign(device_, this);
    return;
  }
  stop();
  throw std::bad_alloc();
}

void RemovalWatch::stop() noexcept {
  if (!owns_eal()) return;
  // DPDK takes the number of a closed port for an error.
  if (!unregistered_.exchange(true)) {
    {
      const std::lock_guard lock(watches_mutex);
      const auto own = watches.find(device_);
      if (own != watches.end() && own->second == this) watches.erase(own);
    }
    // While a call runs, DPDK refuses; the call sets a flag and writes a line to the log.
    while (rte_eth_dev_callback_unregister(port_, RTE_ETH_EVENT_INTR_RMV, on_port_event, this) ==
           -EAGAIN)
      std::this_thread::yield();
  }
  // Waits for one that runs in another thread.
  rte_eal_alarm_cancel(on_alarm, this);
}

void RemovalWatch::on_device_event(const char* name, rte_dev_event_type event, void*) noexcept {
  if (event != RTE_DEV_EVENT_REMOVE) return;
  const std::lock_guard lock(watches_mutex);
  const auto own = watches.find(name);
  if (own != watches.end()) own->second->tell();
}

int RemovalWatch::on_port_event(std::uint16_t, rte_eth_event_type, void* watch, void*) noexcept {
  static_cast<RemovalWatch*>(watch)->tell();
  return 0;
}

void RemovalWatch::tell() noexcept {
  told_.begin_removal();
  end_soon();
}

void RemovalWatch::end_soon() noexcept {
  // Not in the event: closing a device waits until its events have ended. Without memory for it,
  // the kernel asks again in ten seconds.
  rte_eal_alarm_set(AGAIN_US, on_alarm, this);
}

void RemovalWatch::on_alarm(void* watch) noexcept {
  auto* const self = static_cast<RemovalWatch*>(watch);
  if (!self->told_.end_removal()) self->end_soon();
}

}  // namespace daqiri::dpdk
