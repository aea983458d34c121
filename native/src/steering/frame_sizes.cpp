#include "steering/frame_sizes.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "net/transforms.h"

namespace daqiri::steering {

namespace {

constexpr std::uint32_t USUAL_BUFFER = 2048;
constexpr std::uint32_t STANDARD_FRAME = 1514;
constexpr std::uint32_t JUMBO_MTU = 9000;

std::uint64_t buffers_of(const NetworkConfig& config, const CommonQueueConfig& queue) {
  return std::accumulate(queue.mrs_.begin(), queue.mrs_.end(), std::uint64_t{0},
                         [&](std::uint64_t sum, const std::string& region) {
                           return sum + config.mrs_.at(region).buf_size_;
                         });
}

/// `overhead`: bytes of a frame that the MTU does not include.
std::uint32_t mtu_of_frames(std::uint64_t frame, std::uint32_t overhead, std::uint32_t added) {
  if (frame <= USUAL_BUFFER) {
    if (added == 0) return 0;
    frame = std::min<std::uint64_t>(frame, STANDARD_FRAME);
  }
  frame = std::max<std::uint64_t>(frame, overhead);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(frame - overhead, JUMBO_MTU)) + added;
}

std::uint32_t mtu_of_datagrams(std::uint64_t payload, const SocketConfig& socket) {
  constexpr std::string_view UDP = "udp:";
  if (!socket.local_addr_.starts_with(UDP) && !socket.remote_addr_.starts_with(UDP)) return 0;
  if (socket.max_payload_size_ > 0)
    payload = std::min<std::uint64_t>(payload, socket.max_payload_size_);
  const std::string& host = socket.remote_ip_.empty() ? socket.local_ip_ : socket.remote_ip_;
  const std::uint32_t headers =
      (host.find(':') == std::string::npos ? IPV4_SIZE : IPV6_SIZE) + UDP_SIZE;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(payload + headers, JUMBO_MTU));
}

/// Bytes by which a transmit flow makes packets longer, without one VLAN tag, which the kernel
/// allows in addition to the MTU (packet_extra_vlan_len_allowed).
std::uint32_t added_by(const FlowConfig& flow) {
  const bool tagged = std::ranges::any_of(
      flow.actions_, [](const FlowAction& action) { return action.type_ == FlowType::VLAN_PUSH; });
  return Prefix(flow.actions_).overhead() - (tagged ? VLAN_TAG_SIZE : 0);
}

/// Bytes of a tunnel's headers, without options.
std::uint32_t tunnel_bytes(const TunnelConfig& tunnel) {
  switch (tunnel.type_) {
    case TunnelType::NONE:
      return 0;
    case TunnelType::VXLAN:
      return IPV4_SIZE + UDP_SIZE + VXLAN_SIZE + ETHERNET_SIZE;
    case TunnelType::GRE:
      return IPV4_SIZE + GRE_SIZE + (tunnel.gre_protocol_ == ETHERTYPE_BRIDGED ? ETHERNET_SIZE : 0);
    case TunnelType::NVGRE:  // with a key
      return IPV4_SIZE + 2 * GRE_SIZE + ETHERNET_SIZE;
  }
  return 0;
}

bool receives(const FlowAction& action, int queue) {
  if (action.type_ != FlowType::QUEUE) return false;
  if (action.ids_.empty()) return action.id_ == queue;
  return std::ranges::find(action.ids_, queue) != action.ids_.end();
}

std::uint32_t removed_by(const FlowConfig& flow) {
  std::uint32_t removed = 0;
  for (const FlowAction& action : flow.actions_) {
    if (action.type_ == FlowType::VLAN_POP) removed += VLAN_TAG_SIZE;
    if (action.type_ == FlowType::TUNNEL_DECAP) removed += tunnel_bytes(action.tunnel_);
  }
  return removed;
}

}  // namespace

std::uint32_t mtu_needed(const NetworkConfig& config, const InterfaceConfig& interface) {
  std::uint32_t added = 0;
  for (const FlowConfig& flow : interface.tx_.flows_) added = std::max(added, added_by(flow));
  const bool datagrams = interface.socket_.mode_ != SocketMode::INVALID;
  std::uint32_t needed = 0;
  const auto need = [&](const CommonQueueConfig& queue, std::uint32_t overhead,
                        std::uint32_t more) {
    const std::uint64_t bytes = buffers_of(config, queue);
    needed = std::max(needed, datagrams ? mtu_of_datagrams(bytes, interface.socket_)
                                        : mtu_of_frames(bytes, overhead, more));
  };
  // Receive buffers have space for all tags; frames to send may have none.
  for (const RxQueueConfig& queue : interface.rx_.queues_) need(queue.common_, FRAME_OVERHEAD, 0);
  for (const TxQueueConfig& queue : interface.tx_.queues_)
    need(queue.common_, ETHERNET_SIZE, added);
  return needed;
}

std::uint32_t least_removed(const InterfaceConfig& interface, int queue) {
  const bool first =
      !interface.rx_.queues_.empty() && interface.rx_.queues_.front().common_.id_ == queue;
  if (first && !interface.rx_.flow_isolation_) return 0;
  std::uint32_t least = UINT32_MAX;
  for (const FlowConfig& flow : interface.rx_.flows_) {
    const bool to_queue = receives(flow.action_, queue) ||
                          std::ranges::any_of(flow.actions_, [&](const FlowAction& action) {
                            return receives(action, queue);
                          });
    if (to_queue) least = std::min(least, removed_by(flow));
  }
  return least == UINT32_MAX ? 0 : least;
}

}  // namespace daqiri::steering
