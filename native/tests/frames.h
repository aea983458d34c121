/// Frames and interfaces for the steering tests, built independently of the code under test.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
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

struct Ipv6Extension {
  /// 0, 43, 60: options; 44: fragment.
  std::uint8_t kind{60};
  /// Length of options: 8 bytes more for each.
  std::uint8_t more{0};
  /// Offset and flags of a fragment.
  std::uint16_t fragment{0};
};

/// The datagram of make_frame over IPv6.
inline std::vector<std::uint8_t> make_ipv6_frame(
    const FrameFields& f, const std::vector<Ipv6Extension>& extensions = {}) {
  std::vector<std::uint8_t> frame(14 + 40, 0xAA);
  put16(frame, 12, 0x86DD);
  frame[14] = 0x60;
  std::size_t next = 20;
  for (const Ipv6Extension& extension : extensions) {
    frame[next] = extension.kind;
    next = frame.size();
    frame.resize(next + 8U + (extension.kind == 44 ? 0U : 8U * extension.more), 0xBB);
    frame[next + 1] = extension.kind == 44 ? 0xBB : extension.more;
    if (extension.kind == 44) put16(frame, next + 2, extension.fragment);
  }
  frame[next] = f.protocol;
  const std::size_t udp = frame.size();
  frame.resize(udp + 8U + f.payload, 0xEE);
  put16(frame, udp, f.udp_src);
  put16(frame, udp + 2, f.udp_dst);
  put16(frame, udp + 4, 8U + f.payload);
  put16(frame, 18, static_cast<std::uint32_t>(frame.size() - 54));
  return frame;
}

/// Adds VLAN tags of 4 bytes after the addresses, for the VLANs 100, 101 ...
inline std::vector<std::uint8_t> tagged(std::vector<std::uint8_t> frame,
                                        const std::vector<std::uint16_t>& tags) {
  frame.insert(frame.begin() + 12, 4 * tags.size(), 0);
  for (std::size_t i = 0; i < tags.size(); ++i) {
    put16(frame, 12 + 4 * i, tags[i]);
    put16(frame, 14 + 4 * i, 100U + static_cast<std::uint32_t>(i));
  }
  return frame;
}

/// Adds tags with these ids, which may be 0.
inline std::vector<std::uint8_t> tagged_with_ids(std::vector<std::uint8_t> frame,
                                                 const std::vector<std::uint16_t>& ids) {
  frame = tagged(std::move(frame), std::vector<std::uint16_t>(ids.size(), 0x8100));
  for (std::size_t i = 0; i < ids.size(); ++i) put16(frame, 14 + 4 * i, 0xA000U | ids[i]);
  return frame;
}

/// An eCPRI message with `size` bytes after the common header, beginning with a 16-bit id.
inline std::vector<std::uint8_t> ecpri_frame(std::uint8_t type, std::uint16_t id,
                                             std::uint16_t size = 8) {
  std::vector<std::uint8_t> frame(14U + 4U + size, 0);
  put16(frame, 12, 0xAEFE);
  frame[14] = 0x10;  // revision 1
  frame[15] = type;
  put16(frame, 16, size);
  if (size >= 2) put16(frame, 18, id);
  return frame;
}

/// Outer headers of a tunnel, and errors to add to them.
struct OuterFields {
  TunnelType type{TunnelType::VXLAN};
  std::uint32_t src{0xC0A80001};
  std::uint32_t dst{0xC0A80002};
  std::uint16_t udp_src{50000};
  std::uint16_t udp_dst{4789};
  /// VNI or TNI.
  std::uint32_t network{77};
  std::uint8_t flow_id{0};
  /// Protocol of GRE.
  std::uint16_t protocol{0x6558};
  std::uint16_t gre_flags{0};
  std::uint8_t header_words{5};
  std::uint16_t fragment{0};
  /// Added to the correct lengths.
  int ipv4_length{0};
  int udp_length{0};
};

/// `inner` in a tunnel; the optional GRE fields are filled with 0xDD.
inline std::vector<std::uint8_t> in_tunnel(const std::vector<std::uint8_t>& inner,
                                           const OuterFields& f = {}) {
  const bool vxlan = f.type == TunnelType::VXLAN;
  const auto flags = static_cast<std::uint16_t>(f.type == TunnelType::NVGRE ? 0x2000 : f.gre_flags);
  std::size_t gre = 4;
  for (const std::uint16_t field : {0x8000, 0x2000, 0x1000}) gre += (flags & field) != 0 ? 4 : 0;
  const std::size_t tunnel = 14U + f.header_words * 4U;
  const std::size_t size = tunnel + (vxlan ? 16U : gre);
  std::vector<std::uint8_t> frame(size, 0xDD);
  frame.insert(frame.end(), inner.begin(), inner.end());
  for (std::size_t i = 0; i < 12; ++i) frame[i] = static_cast<std::uint8_t>(0x20U + i);
  put16(frame, 12, 0x0800);
  frame[14] = static_cast<std::uint8_t>(0x40U | f.header_words);
  const auto length = static_cast<int>(frame.size());
  put16(frame, 16, static_cast<std::uint32_t>(length - 14 + f.ipv4_length));
  put16(frame, 20, f.fragment);
  frame[23] = vxlan ? 17 : 47;
  put32(frame, 26, f.src);
  put32(frame, 30, f.dst);
  if (vxlan) {
    put16(frame, tunnel, f.udp_src);
    put16(frame, tunnel + 2, f.udp_dst);
    const auto udp = static_cast<int>(frame.size() - tunnel);
    put16(frame, tunnel + 4, static_cast<std::uint32_t>(udp + f.udp_length));
    put32(frame, tunnel + 8, 0x08000000);
    put32(frame, tunnel + 12, f.network << 8U);
    return frame;
  }
  put16(frame, tunnel, flags);
  put16(frame, tunnel + 2, f.type == TunnelType::NVGRE ? 0x6558U : f.protocol);
  if (f.type == TunnelType::NVGRE) put32(frame, tunnel + 4, f.network << 8U | f.flow_id);
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

inline FlowAction action_of(FlowType type, const TunnelConfig& tunnel = {}) {
  FlowAction action;
  action.type_ = type;
  action.tunnel_ = tunnel;
  return action;
}
inline FlowAction push_of(std::uint16_t id, std::uint16_t ethertype = 0x8100) {
  FlowAction action = action_of(FlowType::VLAN_PUSH);
  action.vlan_ = {id, 3, 1, ethertype};
  return action;
}

/// A tunnel with all outer addresses of OuterFields.
inline TunnelConfig tunnel_of(TunnelType type) {
  TunnelConfig tunnel;
  tunnel.type_ = type;
  tunnel.outer_eth_dst_ = "20:21:22:23:24:25";
  tunnel.outer_eth_src_ = "26:27:28:29:2a:2b";
  tunnel.outer_ipv4_src_ = "192.168.0.1";
  tunnel.outer_ipv4_dst_ = "192.168.0.2";
  tunnel.vni_ = tunnel.tni_ = 77;
  tunnel.gre_protocol_ = 0x6558;
  return tunnel;
}

/// A flow that removes what `transforms` describe.
inline FlowConfig& add_flow(InterfaceConfig& interface, FlowId id, std::uint16_t queue,
                            const std::vector<FlowAction>& transforms) {
  FlowConfig& flow = add_flow(interface, id, queue);
  flow.actions_.insert(flow.actions_.begin(), transforms.begin(), transforms.end());
  return flow;
}

}  // namespace daqiri::test
