/// Engines of the common test suite, each with a configuration of two connected ports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daqiri/config.h"

namespace daqiri::test {

struct SuiteOptions {
  int batch{32};
  std::uint32_t timeout_us{500};
  std::uint64_t rx_bufs{4096};
  std::uint64_t tx_bufs{1024};
  std::uint64_t pacing_mbps{0};
  /// Bytes of the first of two segments; 0 for one segment.
  std::uint32_t split{0};
};

struct EngineSetup {
  std::string name;
  /// Packets sent by tx queue 0 of port `tx_port` arrive at rx queue 0 of port `rx_port`.
  NetworkConfig (*config)(const SuiteOptions& options);
  int tx_port{0};
  int rx_port{0};
  /// False for a byte stream, whose packets arrive as they were read.
  bool keeps_boundaries{true};
  /// Packets are not split over segments.
  bool whole_packets{false};
  /// No packets are lost, even if the receiver is slow.
  bool waits{false};
  /// Every lost packet is counted here.
  bool counts_all{true};
  /// Its queues have no threads.
  bool direct{false};
};

inline std::vector<EngineSetup>& engine_setups() {
  static std::vector<EngineSetup> all;
  return all;
}

/// Define as a static object in the test file of the engine.
struct RegisteredSetup {
  explicit RegisteredSetup(const EngineSetup& setup) { engine_setups().push_back(setup); }
};

/// Regions and interfaces without addresses: one interface with both directions, or a sender and a
/// receiver.
inline NetworkConfig suite_config(const SuiteOptions& options, bool two_ports) {
  NetworkConfig config;
  config.log_level_ = LogLevel::ERROR;
  const auto add_region = [&](const char* name, std::uint64_t bufs) {
    MemoryRegionConfig region;
    region.name_ = name;
    region.num_bufs_ = bufs;
    region.buf_size_ = 2048;
    config.mrs_.emplace(region.name_, region);
  };
  add_region("rx_data", options.rx_bufs);
  add_region("tx_data", options.tx_bufs);
  RxQueueConfig rx;
  rx.common_.name_ = "rx0";
  rx.common_.cpu_core_ = "any";
  rx.common_.batch_size_ = options.batch;
  rx.timeout_us_ = options.timeout_us;
  rx.common_.mrs_ = {"rx_data"};
  if (options.split > 0) {
    add_region("rx_headers", options.rx_bufs);
    rx.common_.mrs_ = {"rx_headers", "rx_data"};
    rx.common_.split_boundary_ = options.split;
  }
  TxQueueConfig tx;
  tx.common_.name_ = "tx0";
  tx.common_.cpu_core_ = "any";
  tx.common_.batch_size_ = options.batch;
  tx.common_.mrs_ = {"tx_data"};
  tx.pacing_mbps_ = options.pacing_mbps;
  config.ifs_.resize(two_ports ? 2 : 1);
  config.ifs_.front().name_ = "sender";
  config.ifs_.back().name_ = "receiver";
  config.ifs_.front().tx_.queues_.push_back(tx);
  config.ifs_.back().rx_.queues_.push_back(rx);
  return config;
}

/// Let the callers of all queues poll.
inline void make_direct(InterfaceConfig& interface) {
  const auto change = [](auto& queue) {
    queue.poll_mode_ = QueuePollMode::DIRECT;
    queue.common_.cpu_core_.clear();
    queue.common_.batch_size_ = 0;
  };
  for (RxQueueConfig& queue : interface.rx_.queues_) {
    change(queue);
    queue.timeout_us_ = 0;
  }
  for (TxQueueConfig& queue : interface.tx_.queues_) change(queue);
}

}  // namespace daqiri::test
