/// The end of a device that is taken from the host while it is in use.
#pragma once

#include <rte_dev.h>
#include <rte_ethdev.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace daqiri::dpdk {

/// A thread's use of a device that another thread may take away: one thread at a time calls
/// `begin` and `end`.
class DeviceUse {
 public:
  /// `removed`: true from the moment on at which no use may begin.
  explicit DeviceUse(const std::atomic<bool>& removed) noexcept : removed_(removed) {}

  /// False: the device must not be used.
  bool begin() noexcept {
    // Whoever takes the device away stores `removed` first: either that is seen here, or this
    // there.
    used_.store(true, std::memory_order_seq_cst);
    if (!removed_.load(std::memory_order_seq_cst)) return true;
    end();
    return false;
  }
  void end() noexcept { used_.store(false, std::memory_order_release); }
  /// After `removed` was set: whether the device is still used. Any thread.
  [[nodiscard]] bool active() const noexcept { return used_.load(std::memory_order_seq_cst); }

 private:
  const std::atomic<bool>& removed_;
  std::atomic<bool> used_{false};
};

/// Told that a device is being removed, in a thread of DPDK.
class Removable {
 public:
  /// The host wants the device back, or it is gone. May be called again.
  virtual void begin_removal() noexcept = 0;
  /// Called soon after `begin_removal`. Returns false if the device is still in use: then it is
  /// called again.
  virtual bool end_removal() noexcept = 0;

 protected:
  ~Removable() = default;
};

/// While it exists, a device tells when it is removed.
class RemovalWatch {
 public:
  /// `device`: DPDK's name. `port`: DPDK's number of its port. Throws std::bad_alloc.
  RemovalWatch(std::string device, std::uint16_t port, Removable& told);
  RemovalWatch(const RemovalWatch&) = delete;
  RemovalWatch& operator=(const RemovalWatch&) = delete;
  ~RemovalWatch() { stop(); }

  /// Nothing more is told, and no call runs any longer, except one that calls this. Idempotent. Any
  /// thread.
  void stop() noexcept;

 private:
  static void on_device_event(const char* name, rte_dev_event_type event, void*) noexcept;
  static int on_port_event(std::uint16_t port, rte_eth_event_type event, void* watch,
                           void* result) noexcept;
  static void on_alarm(void* watch) noexcept;
  void tell() noexcept;
  void end_soon() noexcept;

  std::string device_;
  std::uint16_t port_;
  Removable& told_;
  /// DPDK tells nothing any longer.
  std::atomic<bool> unregistered_{false};
};

}  // namespace daqiri::dpdk
