#include "engines/dpdk/pieces.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engines/dpdk/packet_pool.h"
#include "io/rx_queue.h"
#include "steering/packet_key.h"

namespace daqiri::dpdk {

namespace {

bool has(const CommonQueueConfig& queue, const std::string& region) {
  return std::ranges::find(queue.mrs_, region) != queue.mrs_.end();
}

}  // namespace

std::uint32_t first_piece(const NetworkConfig& config, const RxQueueConfig& queue) {
  const CommonQueueConfig& common = queue.common_;
  const MemoryRegionConfig& region = config.mrs_.at(common.mrs_.front());
  return first_segment_capacity(common, static_cast<std::uint32_t>(region.buf_size_));
}

std::string why_not_split(const NetworkConfig& config, const InterfaceConfig& interface,
                          const rte_eth_dev_info& info) {
  const std::vector<RxQueueConfig>& queues = interface.rx_.queues_;
  const RxQueueConfig& first = queues.front();
  const std::vector<std::string>& regions = first.common_.mrs_;
  const auto is_same = [&](const RxQueueConfig& queue) {
    return queue.common_.mrs_ == regions &&
           (regions.size() == 1 || first_piece(config, queue) == first_piece(config, first));
  };
  if (!std::ranges::all_of(queues, is_same))
    return "receive queues of the interface differ in memory_regions or split_boundary";
  const rte_eth_rxseg_capa& can = info.rx_seg_capa;
  if ((info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT) == 0 || can.multi_pools == 0)
    return "the device cannot";
  if (can.max_nseg < regions.size())
    return "the device splits into at most " + std::to_string(can.max_nseg) + " pieces";
  // Data of all buffers begin after their headroom.
  if (can.offset_allowed == 0 ||
      PacketPool::HEADROOM % (std::size_t{1} << can.offset_align_log2) != 0)
    return "the device leaves no headroom before pieces";
  return {};
}

std::string why_not_on_gpu(const FlowConfig& flow, const InterfaceConfig& interface,
                           std::uint32_t first) {
  const auto changes = [](const FlowAction& action) { return action.type_ != FlowType::QUEUE; };
  if (std::ranges::any_of(flow.actions_, changes)) {
    return "the flow removes headers (vlan_pop, tunnel_decap), which moves bytes from one piece to "
           "the other";
  }
  const std::uint32_t bytes = steering::header_bytes_of(flow.match_, interface.rx_.flex_items_);
  if (bytes <= first) return {};
  return "what the flow matches ends after " + std::to_string(bytes) +
         " bytes of a frame, and the first memory region gets " + std::to_string(first) +
         " (split_boundary, buf_size)";
}

std::string why_not_on_gpu(const NetworkConfig& config, const std::string& region) {
  for (const InterfaceConfig& interface : config.ifs_) {
    const std::string name = "interface '" + interface.name_ + "': ";
    for (const TxQueueConfig& queue : interface.tx_.queues_) {
      if (has(queue.common_, region))
        return name + "transmit queue '" + queue.common_.name_ + "' uses the memory region, too";
    }
    for (const RxQueueConfig& queue : interface.rx_.queues_) {
      const CommonQueueConfig& common = queue.common_;
      if (!has(common, region)) continue;
      if (common.mrs_.size() != 2 || common.mrs_.back() != region ||
          common.mrs_.front() == region) {
        return name + "receive queue '" + common.name_ +
               "' does not have it as the second of two memory regions: the CPU reads headers, "
               "which must be in the first";
      }
      for (const FlowConfig& flow : interface.rx_.flows_) {
        const std::string why = why_not_on_gpu(flow, interface, first_piece(config, queue));
        if (why.empty()) continue;
        return std::string(name).append("flow '").append(flow.name_).append("': ").append(why);
      }
    }
  }
  return {};
}

}  // namespace daqiri::dpdk
