/// Frames and interfaces for the steering tests, built independently of the code under test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daqiri/config.h"

namespace daqiri::test {

struct FrameFields {
  std::uint16_t ethertype{0x0800};
  std::uint8_t header_words{5};
  std::uint8_t protocol{17};
  std::uint16_t fragment{0};
  std::uint32_t src{0x0A000001};
  std::uint32_t dst{0x0A000002};
  std::uint16_t udp_src{1000};
  std::uint16_t udp_dst{2000};
  std::uint16_t payload{10};
};

inline void put16(std::vector<std::uint8_t>& frame, std::size_t at, std::uint32_t value) {
  frame[at] = static_cast<std::uint8_t>(value >> 8U & 0xFFU);
  frame[at + 1] = static_cast<std::uint8_t>(value & 0xFFU);
}
inline void put32(std::vector<std::uint8_t>& frame, std::size_t at, std::uint32_t value) {
  put16(frame, at, value >> 16U);
  put16(frame, at + 2, value & 0xFFFFU);
}

inline std::uint32_t ipv4_length(const FrameFields& f) {
  return f.header_words * 4U + 8U + f.payload;
}

inline std::vector<std::uint8_t> make_frame(const FrameFields& f) {
  const std::size_t udp = 14U + f.header_words * 4U;
  std::vector<std::uint8_t> frame(14U + ipv4_length(f), 0xEE);
  put16(frame, 12, f.ethertype);
  frame[14] = static_cast<std::uint8_t>(0x40U | f.header_words);
  put16(frame, 16, ipv4_length(f));
  put16(frame, 20, f.fragment);
  frame[23] = f.protocol;
  put32(frame, 26, f.src);
  put32(frame, 30, f.dst);
  put16(frame, udp, f.udp_src);
  put16(frame, udp + 2, f.udp_dst);
  put16(frame, udp + 4, 8U + f.payload);
  return frame;
}

inline InterfaceConfig interface_with_queues(int queues, int first_id = 0) {
  InterfaceConfig interface;
  interface.name_ = "port0";
  for (int i = 0; i < queues; ++i) {
    RxQueueConfig queue;
    queue.common_.name_ = "rx" + std::to_string(first_id + i);
    queue.common_.id_ = first_id + i;
    interface.rx_.queues_.push_back(queue);
  }
  return interface;
}

inline FlowConfig& add_flow(InterfaceConfig& interface, FlowId id, std::uint16_t queue) {
  FlowConfig flow;
  flow.name_ = "flow" + std::to_string(id);
  flow.id_ = id;
  flow.action_.id_ = queue;
  flow.actions_ = {flow.action_};
  interface.rx_.flows_.push_back(flow);
  return interface.rx_.flows_.back();
}

}  // namespace daqiri::test
