/// Objects that must outlive every burst of a session; all queues of the session share them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "burst/burst.h"
#include "io/direct_work.h"
#include "memory/region.h"
#include "net/link_layer.h"

namespace daqiri {

class Session;

/// Limit per queue.
inline constexpr std::size_t MOST_BURSTS_IN_RING = 2048;

/// Regions and pools. A burst that the application holds shares ownership, so that its packets stay
/// readable after the session is closed.
struct SessionMemory {
  /// The session that the bursts belong to.
  std::weak_ptr<Session> session;
  std::map<std::string, std::unique_ptr<memory::MemoryRegion>> regions;
  /// Memory of engines, in which they deliver packets.
  std::vector<std::shared_ptr<memory::BufferOwner>> owners;
  /// Other objects that bursts point to.
  std::vector<std::shared_ptr<const void>> kept;
  std::vector<std::unique_ptr<BurstPool>> rx_pools;
  std::unique_ptr<BurstPool> tx_pool;
  /// By port.
  std::vector<std::shared_ptr<const LinkLayer>> link_layers;
  /// By port; zeros if it has none.
  std::vector<std::array<std::uint8_t, 6>> mac_addresses;
};

/// Common parts of receive and transmit queues.
template <typename Config>
class QueueBase {
 public:
  QueueBase(const InterfaceConfig& interface, const Config& config,
            std::shared_ptr<SessionMemory> memory)
      : config_(config),
        port_id_(interface.port_id_),
        interface_(interface.name_),
        memory_(std::move(memory)) {
    for (const std::string& name : config_.common_.mrs_)
      regions_.push_back(memory_->regions.at(name).get());
  }
  [[nodiscard]] const Config& config() const noexcept { return config_; }
  [[nodiscard]] bool has_offload(std::string_view name) const noexcept {
    return std::ranges::find(config_.common_.offloads_, name) != config_.common_.offloads_.end();
  }
  /// Whether callers do the work of the queue.
  [[nodiscard]] bool direct() const noexcept { return direct_ != nullptr; }
  /// Call before the queue is used.
  void set_direct(DirectWork& work) noexcept { direct_ = &work; }
  /// Do the pending work of a direct queue. Any thread.
  void work() const noexcept {
    if (direct_ != nullptr) direct_->work();
  }
  [[nodiscard]] std::uint16_t port_id() const noexcept { return port_id_; }
  [[nodiscard]] const std::string& interface_name() const noexcept { return interface_; }
  [[nodiscard]] std::uint16_t id() const noexcept {
    return static_cast<std::uint16_t>(config_.common_.id_);
  }
  [[nodiscard]] int num_segments() const noexcept { return static_cast<int>(regions_.size()); }
  [[nodiscard]] memory::MemoryRegion& region(int segment) const noexcept {
    return *regions_[static_cast<std::size_t>(segment)];
  }
  /// Longest packet, over all segments.
  [[nodiscard]] std::uint32_t max_packet_size() const noexcept { return max_packet_size_; }

 protected:
  Config config_;
  std::uint16_t port_id_;
  std::string interface_;
  std::shared_ptr<SessionMemory> memory_;
  std::vector<memory::MemoryRegion*> regions_;
  std::uint32_t max_packet_size_{0};
  DirectWork* direct_{nullptr};
};

}  // namespace daqiri
