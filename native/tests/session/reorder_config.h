/// Loopback configurations with a reorder plan.
#pragma once

#include <cstddef>
#include <cstdint>

#include "session/loopback_config.h"

namespace daqiri::test {

inline constexpr std::uint32_t FRAME_PACKETS = 16;

/// UDP port 5000 is reordered to frames of so many packets, by the number that udp_frame
/// writes. UDP port 5001 is not reordered.
inline NetworkConfig reordering(std::uint32_t timeout_us = 0,
                                std::uint32_t packets = FRAME_PACKETS) {
  NetworkConfig config = loopback_config(32, 500);
  MemoryRegionConfig output;
  output.name_ = "output";
  output.num_bufs_ = 16;
  output.buf_size_ = std::size_t{FRAME_PACKETS} * 2048;
  config.mrs_.emplace(output.name_, output);
  RxConfig& rx = config.ifs_[0].rx_;
  rx.queues_.pop_back();
  rx.flows_[1].action_.id_ = 0;
  rx.flows_[1].actions_ = {rx.flows_[1].action_};
  ReorderConfig plan;
  plan.name_ = "frames";
  plan.reorder_type_ = "cpu";
  plan.memory_region_ = "output";
  plan.payload_byte_offset_ = 42;
  plan.flow_ids_ = {10};
  plan.method_ = ReorderMethod::SEQ_PACKETS_PER_BATCH;
  ReorderBitFieldConfig number{336, 32};
  number.byte_order_ = ReorderByteOrder::LITTLE;
  plan.seq_packets_per_batch_ = {number, packets};
  plan.timeout_us_ = timeout_us;
  rx.reorder_configs_.push_back(plan);
  return config;
}

}  // namespace daqiri::test
