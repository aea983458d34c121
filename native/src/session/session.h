/// A running configuration. A process can have several.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daqiri/config.h"
#include "io/io_engine.h"
#include "io/session_memory.h"
#include "reorder/stage.h"

namespace daqiri {

class FlowChanges;
class Housekeeper;
class Poller;
class Transmitter;
struct SessionSnapshot;

/// Receive queues in rotation: the next search starts after the queue that last had data.
struct Rotation {
  /// Return a burst of any of the queues that no recorder owns, or null. Throws like
  /// RxQueue::receive, for recorders only if they own all.
  Burst* receive();

  std::vector<RxQueue*> queues;
  std::atomic<std::size_t> next{0};
};

/// Log a line for each warning of a report without errors.
void log_warnings(const ConfigReport& report, const NetworkConfig& config);

class Session : public std::enable_shared_from_this<Session> {
 public:
  /// Validate, allocate, open and start. Throws Error after freeing everything. `read`: the
  /// problems that were found when the configuration was read, which are reported together with
  /// those found now.
  static std::shared_ptr<Session> open(NetworkConfig config, ConfigReport read = {});

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  /// Stop threads, deliver partial bursts, close the engine. Bursts that the application holds stay
  /// readable, and what the rings hold can still be received; a memory region that holds none of
  /// these is freed. Idempotent; any thread.
  void close() noexcept;
  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }

  /// The configuration with all defaults and adjustments.
  [[nodiscard]] const NetworkConfig& config() const noexcept { return config_; }
  /// The configuration with the current flows.
  [[nodiscard]] NetworkConfig current_config() const;
  /// `current_config` as YAML. It is written once: each recorder needs it.
  [[nodiscard]] std::string config_text() const;
  /// Time of opening, CLOCK_REALTIME ns.
  [[nodiscard]] std::uint64_t opened() const noexcept { return opened_; }
  [[nodiscard]] const ConfigReport& report() const noexcept { return report_; }

  [[nodiscard]] std::size_t num_ports() const noexcept { return ports_.size(); }
  /// Throw Error INVALID_PARAMETER with the existing ports or queues.
  [[nodiscard]] Port& port(int id) const;
  [[nodiscard]] RxQueue& rx_queue(int port, int queue) const;
  [[nodiscard]] TxQueue& tx_queue(int port, int queue) const;
  /// The queues of a port; of all ports.
  [[nodiscard]] Rotation& any_rx_queue(int port) { return rotations_[this->port(port).id]; }
  [[nodiscard]] Rotation& any_rx_queue() noexcept { return rotations_.back(); }
  /// Instead of a port, for plans of the whole configuration.
  static constexpr int NO_PORT = -1;
  /// The plans of a port, or NO_PORT, in the order of the configuration. Throws Error
  /// INVALID_PARAMETER.
  [[nodiscard]] std::deque<reorder::RunningPlan>& reorder_plans(int port);
  [[nodiscard]] const std::deque<reorder::RunningPlan>& reorder_plans(int port) const;
  /// What this host lost of the packets of several ports; see PortIo::losses. Ports of one network
  /// interface have the same losses, which count once.
  [[nodiscard]] PortSnapshot losses(const std::vector<int>& ports, std::uint64_t max_age) const;
  /// The connections of the engine. Throws Error NOT_SUPPORTED if it has none.
  [[nodiscard]] Connections& connections() const;
  [[nodiscard]] FlowChanges& flow_changes() const noexcept { return *flow_changes_; }
  /// Call FlowChanges::configure and update `latest`.
  void configure_flows(NetworkConfig wanted);
  /// Null if the engine has none.
  [[nodiscard]] Connections* find_connections() const noexcept { return engine_->connections(); }
  [[nodiscard]] const std::shared_ptr<SessionMemory>& memory() const noexcept { return memory_; }

  /// Counters and levels of all parts, at most a tenth of a second old: copied by the housekeeping
  /// thread, so that frequent reads do not slow down the packet threads. For a closed session, the
  /// current values. SessionSnapshot::of is always exact.
  [[nodiscard]] std::shared_ptr<const SessionSnapshot> latest() const;
  /// The latest of the copies that is not later than `steady` (CLOCK_MONOTONIC ns), of those of the
  /// last second.
  [[nodiscard]] std::shared_ptr<const SessionSnapshot> before(std::uint64_t steady) const;

  /// Return a transmit burst that belongs to no queue yet; null if the pool is empty.
  Burst* take_tx_burst() noexcept;

 private:
  explicit Session(NetworkConfig config);
  void build();
  using Stages = std::map<RxQueue*, std::unique_ptr<reorder::ReorderStage>>;
  void allocate_regions();
  void add_reorder_plans();
  void add_reorder_plan(std::deque<reorder::RunningPlan>& plans, const ReorderConfig& config,
                        Stages& stages);
  void start();

  NetworkConfig config_;
  ConfigReport report_;
  std::uint64_t opened_;
  std::shared_ptr<SessionMemory> memory_;
  /// By port, in the order of the configuration, then those of the whole configuration.
  std::vector<std::deque<reorder::RunningPlan>> reorder_;
  std::vector<std::unique_ptr<Port>> ports_;
  /// One per port, then one for all ports.
  std::deque<Rotation> rotations_;
  std::unique_ptr<IoEngine> engine_;
  std::vector<std::unique_ptr<Poller>> pollers_;
  std::vector<std::unique_ptr<Transmitter>> transmitters_;
  std::unique_ptr<FlowChanges> flow_changes_;
  std::unique_ptr<Housekeeper> housekeeper_;
  std::mutex close_mutex_;
  mutable std::mutex text_mutex_;
  mutable NetworkConfig text_of_;
  mutable std::string text_;
  std::atomic<bool> closed_{false};
};

}  // namespace daqiri
