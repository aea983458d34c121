/// Loopback configurations and frames for the session tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "daqiri/config.h"
#include "session/send.h"
#include "session/session.h"
#include "timing/clock.h"

namespace daqiri::test {

inline NetworkConfig loopback_config(int batch = 64, std::uint32_t timeout_us = 500,
                                     std::uint64_t num_bufs = 2048) {
  NetworkConfig config;
  config.common_.loopback_ = LoopbackType::LOOPBACK_TYPE_SW;
  config.log_level_ = LogLevel::ERROR;
  for (const char* name : {"rx_frames", "tx_frames"}) {
    MemoryRegionConfig region;
    region.name_ = name;
    region.num_bufs_ = num_bufs;
    region.buf_size_ = 2048;
    config.mrs_.emplace(region.name_, region);
  }
  InterfaceConfig port;
  port.name_ = "port0";
  port.address_ = "loopback";
  for (int id = 0; id < 2; ++id) {
    RxQueueConfig rx;
    rx.common_.name_ = "rx" + std::to_string(id);
    rx.common_.id_ = id;
    rx.common_.cpu_core_ = "any";
    rx.common_.batch_size_ = batch;
    rx.timeout_us_ = timeout_us;
    rx.common_.mrs_ = {"rx_frames"};
    port.rx_.queues_.push_back(rx);
    FlowConfig flow;
    flow.name_ = "flow" + std::to_string(id);
    flow.id_ = static_cast<FlowId>(10 + id);
    flow.match_.udp_dst_ = {static_cast<std::uint16_t>(5000 + id),
                            static_cast<std::uint16_t>(5000 + id)};
    flow.action_.id_ = static_cast<std::uint16_t>(id);
    flow.actions_ = {flow.action_};
    port.rx_.flows_.push_back(flow);
  }
  TxQueueConfig tx;
  tx.common_.name_ = "tx0";
  tx.common_.cpu_core_ = "any";
  tx.common_.batch_size_ = batch;
  tx.common_.mrs_ = {"tx_frames"};
  port.tx_.queues_.push_back(tx);
  config.ifs_.push_back(port);
  return config;
}

/// Adds a memory region that differs from another in its name and its buffers' size.
inline void add_region(NetworkConfig& config, const std::string& name, const std::string& like,
                       std::size_t buf_size) {
  MemoryRegionConfig region = config.mrs_.at(like);
  region.name_ = name;
  region.buf_size_ = buf_size;
  config.mrs_[name] = region;
}

/// An Ethernet/IPv4/UDP frame whose payload starts with `number`.
inline std::vector<std::uint8_t> udp_frame(std::uint16_t udp_dst, std::uint32_t number,
                                           std::size_t length = 128) {
  std::vector<std::uint8_t> frame(length, static_cast<std::uint8_t>(number));
  const auto put16 = [&](std::size_t at, std::size_t value) {
    frame[at] = static_cast<std::uint8_t>(value >> 8U);
    frame[at + 1] = static_cast<std::uint8_t>(value);
  };
  std::fill(frame.begin(), frame.begin() + 42, std::uint8_t{0});
  put16(12, 0x0800);
  frame[14] = 0x45;
  put16(16, length - 14);
  frame[22] = 64;
  frame[23] = 17;
  put16(34, 4000);
  put16(36, udp_dst);
  put16(38, length - 34);
  std::memcpy(frame.data() + 42, &number, sizeof number);
  return frame;
}

inline std::uint32_t number_of(const Burst& burst, std::uint32_t i) {
  std::uint32_t number = 0;
  std::memcpy(&number, static_cast<const std::uint8_t*>(burst.pkts[0][i]) + 42, sizeof number);
  return number;
}

/// Sends `count` frames numbered from `first`; waits for buffers, for at most 10 s.
inline bool send_frames(TxQueue& tx, std::uint16_t udp_dst, std::uint32_t first,
                        std::uint32_t count, std::uint64_t launch = 0, std::uint64_t gap = 0,
                        std::size_t length = 128) {
  return send_packets(tx, count, launch, gap, 10'000'000'000,
                      [&](std::uint32_t i) { return udp_frame(udp_dst, first + i, length); });
}

/// Receives until `count` packets have arrived or none arrives for 10 s. Returns the numbers in
/// order.
inline std::vector<std::uint32_t> receive_numbers(RxQueue& rx, std::size_t count) {
  std::vector<std::uint32_t> numbers;
  std::uint64_t last = monotonic_ns();
  while (numbers.size() < count && monotonic_ns() - last < 10'000'000'000ULL) {
    Burst* burst = rx.receive();
    if (burst == nullptr) {
      rx.wait(50'000'000);
      continue;
    }
    for (std::uint32_t i = 0; i < burst->num_packets(); ++i)
      numbers.push_back(number_of(*burst, i));
    burst->release();
    last = monotonic_ns();
  }
  return numbers;
}

inline bool balanced(const RxSnapshot& s) {
  return s.received == s.delivered + s.held + s.dropped_total();
}
inline bool balanced(const TxSnapshot& s) {
  return s.submitted == s.sent + s.held + s.dropped_total();
}

}  // namespace daqiri::test
