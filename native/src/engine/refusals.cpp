#include "engine/refusals.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "burst/burst.h"
#include "daqiri/error.h"

namespace daqiri {

namespace {

constexpr const char* MATCHES = "match udp_src, udp_dst, ipv4_len, ipv4_src or ipv4_dst";

/// Something that an interface may ask for.
struct Request {
  /// The trait of engines that can do it; null: none can.
  bool EngineTraits::* trait;
  /// The item that asks and its value; empty: none does.
  std::string (*item)(const InterfaceConfig& interface);
  const char* remedy;
};

/// The first flow whose `value` is not empty.
template <typename Flows, typename Value>
std::string flow_that(const Flows& flows, Value value) {
  for (const auto& flow : flows) {
    if (const std::string found = value(flow); !found.empty())
      return "flow '" + flow.name_ + "': " + found;
  }
  return {};
}

template <typename Flow>
std::string transform_of(const Flow& flow) {
  for (const FlowAction& action : flow.actions_) {
    switch (action.type_) {
      case FlowActionType::QUEUE:
        break;
      case FlowActionType::VLAN_PUSH:
        return "action vlan_push";
      case FlowActionType::VLAN_POP:
        return "action vlan_pop";
      case FlowActionType::TUNNEL_ENCAP:
        return "action tunnel_encap";
      case FlowActionType::TUNNEL_DECAP:
        return "action tunnel_decap";
    }
  }
  return {};
}

std::string byte_match_of(const FlowConfig& flow) {
  if (flow.match_.type_ == FlowMatchType::ECPRI) return "match by eCPRI";
  if (flow.match_.type_ != FlowMatchType::FLEX_ITEM) return {};
  return "match by flex item " + std::to_string(flow.match_.flex_item_match_.flex_item_id_);
}

std::string spread_of(const FlowConfig& flow) {
  const std::size_t queues = flow.action_.ids_.size();
  return queues < 2 ? std::string() : "RSS, ids of " + std::to_string(queues) + " queues";
}

template <typename Queues>
std::string direct_queue(const Queues& queues) {
  const auto found = std::find_if(queues.begin(), queues.end(), [](const QueueConfig& queue) {
    return queue.poll_mode_ == PollMode::DIRECT;
  });
  return found == queues.end() ? std::string() : "queue '" + found->name_ + "': poll_mode: direct";
}

const Request REQUESTS[] = {
    {nullptr,
     [](const InterfaceConfig& interface) {
       const auto& plans = interface.rx_.reorder_configs_;
       return plans.empty() ? std::string() : "reorder config '" + plans.front().name_ + "'";
     },
     "remove reorder_configs"},
    {&EngineTraits::hardware_timestamps,
     [](const InterfaceConfig& interface) {
       return std::string(interface.rx_.hardware_timestamps_ ? "hardware_timestamps: true" : "");
     },
     "set it to false, for timestamps of the software"},
    {&EngineTraits::timed_send,
     [](const InterfaceConfig& interface) {
       return std::string(interface.tx_.accurate_send_ ? "accurate_send: true" : "");
     },
     "set it to false, for launch times that the worker keeps"},
    {&EngineTraits::dynamic_flows,
     [](const InterfaceConfig& interface) {
       const std::uint32_t flows = interface.rx_.dynamic_flow_capacity_;
       return flows == 0 ? std::string() : "dynamic_flow_capacity: " + std::to_string(flows);
     },
     "set it to 0"},
    {&EngineTraits::byte_matches,
     [](const InterfaceConfig& interface) {
       return flow_that(interface.rx_.flows_, byte_match_of);
     },
     MATCHES},
    {&EngineTraits::rss,
     [](const InterfaceConfig& interface) { return flow_that(interface.rx_.flows_, spread_of); },
     "give the queue action one id"},
    {&EngineTraits::transforms,
     [](const InterfaceConfig& interface) {
       return flow_that(interface.rx_.flows_, transform_of<FlowConfig>);
     },
     "leave only the queue action"},
    {&EngineTraits::transforms,
     [](const InterfaceConfig& interface) {
       return flow_that(interface.tx_.flows_, transform_of<TxFlowConfig>);
     },
     "remove tx.flows"},
    {&EngineTraits::direct_mode,
     [](const InterfaceConfig& interface) { return direct_queue(interface.rx_.queues_); },
     "use indirect"},
    {&EngineTraits::direct_mode,
     [](const InterfaceConfig& interface) { return direct_queue(interface.tx_.queues_); },
     "use indirect"},
};

/// Adds up what is needed, and refuses what does not fit beside the rest.
class Budget {
 public:
  explicit Budget(std::uint64_t memory) : memory_(memory) {}

  void add(Status status, std::uint64_t bytes, const std::string& item, const char* remedy) {
    needed_ += bytes;
    if (needed_ <= memory_) return;
    const std::string others =
        needed_ > bytes ? ", with what comes before it " + std::to_string(needed_) : "";
    throw Error(status, item + " needs " + std::to_string(bytes) + " bytes of memory" + others +
                            ", and this machine has " + std::to_string(memory_) + "; lower " +
                            remedy);
  }

 private:
  std::uint64_t memory_;
  std::uint64_t needed_{0};
};

}  // namespace

void refuse_unsupported(const NetworkConfig& config, const EngineTraits& traits) {
  for (const InterfaceConfig& interface : config.ifs_) {
    for (const Request& request : REQUESTS) {
      if (request.trait != nullptr && traits.*request.trait) continue;
      const std::string item = request.item(interface);
      if (item.empty()) continue;
      const std::string who = request.trait == nullptr
                                  ? "this build does not have"
                                  : "engine '" + std::string(traits.name) + "' does not have";
      throw Error(Status::NOT_SUPPORTED, "interface '" + interface.name_ + "': " + item +
                                             ", which " + who + "; " + request.remedy);
    }
  }
}

std::uint64_t machine_memory() noexcept {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

void refuse_oversized(const NetworkConfig& config, std::uint64_t memory) {
  Budget budget(memory);
  for (const MemoryRegionConfig& region : config.mrs_) {
    if (region.kind_ == MemoryKind::DEVICE) continue;
    budget.add(Status::NO_FREE_PACKET_BUFFERS, region.num_bufs_ * region.buf_size_,
               "memory region '" + region.name_ + "' of num_bufs " +
                   std::to_string(region.num_bufs_) + " x buf_size " +
                   std::to_string(region.buf_size_),
               "num_bufs or buf_size");
  }
  const auto bursts = [&](std::uint32_t count, int batch, std::size_t segments,
                          const std::string& key, const std::string& queue) {
    const auto packets = static_cast<std::uint32_t>(std::max(batch, 1));
    budget.add(
        Status::NO_FREE_BURST_BUFFERS,
        BurstPool::bytes(count, packets, static_cast<int>(std::max<std::size_t>(segments, 1))),
        key + " " + std::to_string(count) + " x batch_size " + std::to_string(batch) +
            " of queue '" + queue + "'",
        "tx_meta_buffers, rx_meta_buffers or batch_size");
  };
  // One pool for all transmit queues, as large as the largest needs.
  const QueueConfig* largest = nullptr;
  std::size_t segments = 1;
  for (const InterfaceConfig& interface : config.ifs_) {
    for (const RxQueueConfig& queue : interface.rx_.queues_)
      bursts(config.rx_meta_buffers_, queue.batch_size_, queue.mrs_.size(), "rx_meta_buffers",
             queue.name_);
    for (const TxQueueConfig& queue : interface.tx_.queues_) {
      if (largest == nullptr || queue.batch_size_ > largest->batch_size_) largest = &queue;
      segments = std::max(segments, queue.mrs_.size());
    }
  }
  if (largest != nullptr)
    bursts(config.tx_meta_buffers_, largest->batch_size_, segments, "tx_meta_buffers",
           largest->name_);
}

}  // namespace daqiri
