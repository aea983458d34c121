/// Loopback configurations made from numbers that a random generator or a fuzzer supplies.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "daqiri/config.h"

namespace daqiri::test {

/// Returns a number from `first` to `last`.
using Pick = std::function<std::uint32_t(std::uint32_t first, std::uint32_t last)>;

/// First UDP port of packets in random configurations; some ports are in no flow.
inline constexpr std::uint16_t FIRST_PORT = 5000;
inline constexpr std::uint16_t LAST_PORT = 5007;

inline MemoryRegionConfig small_region(const std::string& name, std::uint32_t num_bufs,
                                       std::uint32_t buf_size) {
  MemoryRegionConfig region;
  region.name_ = name;
  region.num_bufs_ = num_bufs;
  region.buf_size_ = buf_size;
  return region;
}

template <typename Queue>
Queue unpinned_queue(const std::string& name, int id, std::uint32_t batch) {
  Queue queue;
  queue.common_.name_ = name;
  queue.common_.id_ = id;
  queue.common_.cpu_core_ = "any";
  queue.common_.batch_size_ = static_cast<int>(batch);
  return queue;
}

/// One port that receives its own packets: several queues with few buffers and few bursts,
/// overlapping flows, whole or split packets, with and without timeout and isolation.
inline NetworkConfig random_config(const Pick& pick, std::uint32_t most_senders) {
  NetworkConfig config;
  config.common_.loopback_ = LoopbackType::LOOPBACK_TYPE_SW;
  config.log_level_ = LogLevel::OFF;
  config.rx_meta_buffers_ = pick(1, 12);
  config.tx_meta_buffers_ = pick(1, 12);
  const std::uint32_t buf_size = pick(64, 256);
  const bool split = pick(0, 1) == 1;
  const std::uint32_t header_size = pick(14, 64);
  for (const auto& region :
       {small_region("rx", pick(96, 256), buf_size), small_region("tx", pick(96, 256), buf_size),
        small_region("headers", pick(96, 256), header_size)})
    config.mrs_.emplace(region.name_, region);

  InterfaceConfig port;
  port.name_ = "port0";
  port.address_ = "loopback";
  port.rx_.flow_isolation_ = pick(0, 1) == 1;
  const std::uint32_t queues = pick(1, 3);
  for (std::uint32_t id = 0; id < queues; ++id) {
    auto rx =
        unpinned_queue<RxQueueConfig>("rx" + std::to_string(id), static_cast<int>(id), pick(1, 64));
    rx.timeout_us_ = pick(0, 2) * 100;
    rx.common_.mrs_ = {"rx"};
    if (split) {
      rx.common_.mrs_ = {"headers", "rx"};
      rx.common_.split_boundary_ = pick(0, header_size);
    }
    port.rx_.queues_.push_back(rx);
  }
  const std::uint32_t flows = pick(0, 4);
  for (std::uint32_t i = 0; i < flows; ++i) {
    FlowConfig flow;
    flow.name_ = "flow" + std::to_string(i);
    flow.id_ = i + 1;
    const auto low = static_cast<std::uint16_t>(pick(FIRST_PORT, LAST_PORT));
    flow.match_.udp_dst_ = {low, static_cast<std::uint16_t>(pick(low, LAST_PORT))};
    flow.action_.id_ = static_cast<std::uint16_t>(pick(0, queues - 1));
    if (queues > 1 && pick(0, 2) == 0) {
      for (std::uint32_t id = 0; id < queues; ++id)
        flow.action_.ids_.push_back(static_cast<std::uint16_t>(id));
    }
    flow.actions_ = {flow.action_};
    port.rx_.flows_.push_back(flow);
  }
  const std::uint32_t senders = pick(1, most_senders);
  for (std::uint32_t id = 0; id < senders; ++id) {
    auto tx =
        unpinned_queue<TxQueueConfig>("tx" + std::to_string(id), static_cast<int>(id), pick(1, 64));
    tx.common_.mrs_ = {"tx"};
    port.tx_.queues_.push_back(tx);
  }
  config.ifs_.push_back(port);
  return config;
}

}  // namespace daqiri::test
