// Detects what a configuration requests but cannot have, before anything is opened.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "burst/burst.h"
#include "daqiri/error.h"
#include "engine/registry.h"
#include "memory/region.h"
#include "net/transforms.h"

namespace daqiri {

namespace {

/// In the order of FlowType.
constexpr const char* ACTIONS[] = {"queue", "vlan_push", "vlan_pop", "tunnel_encap",
                                   "tunnel_decap"};

/// The first flow whose `value` is not empty.
template <typename Flows, typename Value>
std::string flow_that(const Flows& flows, Value value) {
  for (const auto& flow : flows) {
    if (const std::string found = value(flow); !found.empty())
      return "flow '" + flow.name_ + "': " + found;
  }
  return {};
}

template <typename Flows>
std::string transform_of(const Flows& flows) {
  return flow_that(flows, [](const auto& flow) -> std::string {
    for (const FlowAction& action : flow.actions_) {
      if (action.type_ != FlowType::QUEUE)
        return std::string("action ") + ACTIONS[static_cast<std::size_t>(action.type_)];
    }
    return {};
  });
}

bool is_tunnel(const FlowAction& action) {
  return action.type_ == FlowType::TUNNEL_ENCAP || action.type_ == FlowType::TUNNEL_DECAP;
}

template <typename Flows>
std::string nested_tunnel_of(const Flows& flows) {
  return flow_that(flows, [](const auto& flow) -> std::string {
    const auto tunnels = std::ranges::count_if(flow.actions_, is_tunnel);
    return tunnels < 2 ? std::string() : std::to_string(tunnels) + " nested tunnels";
  });
}

/// Tags in a tunnel that has no Ethernet header for them.
template <typename Flows>
std::string bare_tag_of(const Flows& flows) {
  return flow_that(flows, [](const auto& flow) -> std::string {
    const auto& actions = flow.actions_;
    const auto tunnel = std::ranges::find_if(actions, is_tunnel);
    if (tunnel == actions.end() || tunnel->tunnel_.type_ != TunnelType::GRE ||
        tunnel->tunnel_.gre_protocol_ == ETHERTYPE_BRIDGED)
      return {};
    const auto is = [](FlowType type) {
      return [=](const FlowAction& action) { return action.type_ == type; };
    };
    if (std::none_of(actions.begin(), tunnel, is(FlowType::VLAN_PUSH)) &&
        std::none_of(tunnel, actions.end(), is(FlowType::VLAN_POP)))
      return {};
    return "VLAN tags in a GRE tunnel with gre_protocol " +
           std::to_string(tunnel->tunnel_.gre_protocol_);
  });
}

/// More tags, before a tunnel or in it, than are read.
std::string deep_tags_of(const std::vector<FlowConfig>& flows) {
  return flow_that(flows, [](const FlowConfig& flow) -> std::string {
    unsigned tags = 0;
    for (const FlowAction& action : flow.actions_) {
      if (is_tunnel(action)) tags = 0;
      if (action.type_ == FlowType::VLAN_POP && ++tags > MOST_VLAN_TAGS)
        return "more than " + std::to_string(MOST_VLAN_TAGS) + " vlan_pop in a row";
    }
    return {};
  });
}

std::string ecpri_match_of(const FlowConfig& flow) {
  return flow.match_.type_ == FlowMatchType::ECPRI ? "match by eCPRI" : "";
}

std::string flex_match_of(const FlowConfig& flow) {
  if (flow.match_.type_ != FlowMatchType::FLEX_ITEM) return {};
  return "match by flex item " + std::to_string(flow.match_.flex_item_match_.flex_item_id_);
}

std::string spread_of(const FlowConfig& flow) {
  const std::size_t queues = flow.action_.ids_.size();
  return queues < 2 ? std::string() : "RSS, ids of " + std::to_string(queues) + " queues";
}

std::string gpu_plan(const std::vector<ReorderConfig>& plans) {
  for (const ReorderConfig& plan : plans) {
    if (plan.reorder_type_ == "gpu") return "reorder config '" + plan.name_ + "' on a GPU";
  }
  return {};
}

template <typename Queues>
std::string direct_queue(const Queues& queues) {
  for (const auto& queue : queues) {
    if (queue.poll_mode_ == QueuePollMode::DIRECT)
      return "queue '" + queue.common_.name_ + "': poll_mode: direct";
  }
  return {};
}

/// Queues of an interface that its engine cannot read apart.
void find_poll_modes(const InterfaceConfig& interface, const EngineTraits& traits,
                     std::vector<Error>& found) {
  const std::vector<RxQueueConfig>& queues = interface.rx_.queues_;
  const auto other = std::ranges::find_if(queues, [&](const RxQueueConfig& queue) {
    return queue.poll_mode_ != queues.front().poll_mode_;
  });
  if (!traits.reads_together || other == queues.end()) return;
  std::string text = "interface '" + interface.name_ + "': rx queues '";
  text.append(queues.front().common_.name_).append("' and '").append(other->common_.name_);
  text.append("' have different poll_modes, and engine '").append(traits.name);
  text.append("' reads all queues of an interface together; give them the same poll_mode");
  found.emplace_back(Status::NOT_SUPPORTED, text);
}

/// What the interfaces require of the engine, and it does not have or rejects.
void find_missing(const NetworkConfig& config, const EngineTraits& traits,
                  std::vector<Error>& found) {
  for (const InterfaceConfig& interface : config.ifs_) {
    const RxConfig& rx = interface.rx_;
    const TxConfig& tx = interface.tx_;
    // `item`: the requested feature with its value; empty: none.
    const auto need = [&](const std::string& who, bool has, const std::string& item,
                          const std::string& remedy) {
      if (has || item.empty()) return;
      std::string text = "interface '" + interface.name_;
      text.append("': ").append(item).append(", which ").append(who).append(" does not have; ");
      found.emplace_back(Status::NOT_SUPPORTED, text + remedy);
    };
    const std::string engine = "engine '" + std::string(traits.name) + "'";
    const bool stream = config.common_.stream_type == StreamType::SOCKET &&
                        config.common_.protocol == SocketProtocol::TCP;
    need("TCP", !stream,
         rx.reorder_configs_.empty()
             ? ""
             : "reorder config '" + rx.reorder_configs_.front().name_ + "' of packets",
         "use udp:// endpoints, or remove reorder_configs");
    need("TCP", !stream, tx.accurate_send_ && !tx.queues_.empty() ? "accurate_send: true" : "",
         "set it to false, for launch times in software");
    need(engine, traits.hardware_timestamps,
         rx.hardware_timestamps_ ? "hardware_timestamps: true" : "",
         "set it to false, for timestamps in software");
    need(engine, traits.timed_send, tx.accurate_send_ ? "accurate_send: true" : "",
         "set it to false, for launch times in software");
    need(engine, traits.dynamic_flows,
         rx.dynamic_flow_capacity_ == 0
             ? ""
             : "dynamic_flow_capacity: " + std::to_string(rx.dynamic_flow_capacity_),
         "set it to 0");
    need(engine, traits.packet_filter, rx.filter_.empty() ? "" : "filter: " + rx.filter_,
         "remove it; select packets with flows and flow_isolation");
    need(engine, traits.ecpri, flow_that(rx.flows_, ecpri_match_of),
         "match udp_src, udp_dst, ipv4_len, ipv4_src or ipv4_dst");
    need(stream ? "TCP" : engine, traits.flex_items && !stream, flow_that(rx.flows_, flex_match_of),
         "match udp_src, udp_dst, ipv4_len, ipv4_src or ipv4_dst");
    need(engine, traits.rss, flow_that(rx.flows_, spread_of), "give the queue action one id");
    need(engine, traits.transforms, transform_of(rx.flows_), "leave only the queue action");
    need(engine, traits.transforms, transform_of(tx.flows_), "remove tx.flows");
    need(engine, !traits.transforms, deep_tags_of(rx.flows_), "leave out the others");
    for (const auto* flows : {&rx.flows_, &tx.flows_}) {
      need(engine, !traits.transforms, nested_tunnel_of(*flows), "give the flow one tunnel");
      need(engine, !traits.transforms, bare_tag_of(*flows),
           "set gre_protocol: 25944 (0x6558), for Ethernet frames in the tunnel, or tag the frame "
           "around it");
    }
    need(engine, traits.direct_mode, direct_queue(rx.queues_), "use indirect");
    need(engine, traits.direct_mode, direct_queue(tx.queues_), "use indirect");
    find_poll_modes(interface, traits, found);
  }
  if (config.common_.stream_type == StreamType::SOCKET &&
      config.common_.protocol == SocketProtocol::TCP && !config.reorder_configs_.empty()) {
    found.emplace_back(Status::NOT_SUPPORTED,
                       "reorder config '" + config.reorder_configs_.front().name_ +
                           "' of packets, which TCP does not have; use udp:// endpoints, or remove "
                           "reorder_configs");
  }
  if (traits.find_rejected != nullptr) traits.find_rejected(config, found);
}

/// Reorder plans for which this host has no GPU.
void find_absent_gpu(const NetworkConfig& config, std::vector<Error>& found) {
  const auto find = [&](std::string text, const std::vector<ReorderConfig>& plans) {
    const std::string plan = gpu_plan(plans);
    if (plan.empty()) return;
    const std::string why = memory::why_absent(MemoryKind::HOST_PINNED);
    if (why.empty()) return;
    text.append(plan).append(" needs CUDA, and ").append(why);
    found.emplace_back(Status::NOT_SUPPORTED, text.append("; set reorder_type: cpu"));
  };
  for (const InterfaceConfig& interface : config.ifs_)
    find("interface '" + interface.name_ + "': ", interface.rx_.reorder_configs_);
  find({}, config.reorder_configs_);
}

/// Host memory that a configuration needs.
struct Allocation {
  /// Status if there is too little.
  Status status;
  std::uint64_t bytes;
  std::string item;
  /// Keys to lower.
  std::string remedy;
};

template <typename Use>
void for_each_allocation(const NetworkConfig& config, Use use) {
  for (const MemoryRegionConfig* each : memory_regions(config)) {
    const MemoryRegionConfig& region = *each;
    // Packets have a copy in host memory, frames do not.
    if (region.kind_ == MemoryKind::DEVICE && !holds_packets(config, region.name_)) continue;
    use(Allocation{Status::NO_FREE_PACKET_BUFFERS, region.num_bufs_ * region.buf_size_,
                   "memory region '" + region.name_ + "' of num_bufs " +
                       std::to_string(region.num_bufs_) + " x buf_size " +
                       std::to_string(region.buf_size_),
                   "num_bufs or buf_size"});
  }
  const auto use_bursts = [&](const std::string& key, std::uint32_t count,
                              const CommonQueueConfig& queue, std::size_t segments) {
    const int batch = queue.batch_size_;
    use(Allocation{Status::NO_FREE_BURST_BUFFERS,
                   BurstPool::bytes(count, static_cast<std::uint32_t>(std::max(batch, 1)),
                                    std::max(static_cast<int>(segments), 1)),
                   key + " " + std::to_string(count) + " x batch_size " + std::to_string(batch) +
                       " of queue '" + queue.name_ + "'",
                   "tx_meta_buffers, rx_meta_buffers or batch_size"});
  };
  // One pool for all transmit queues, with the largest batch size among them.
  const CommonQueueConfig* largest = nullptr;
  std::size_t segments = 1;
  for (const InterfaceConfig& interface : config.ifs_) {
    for (const RxQueueConfig& queue : interface.rx_.queues_)
      use_bursts("rx_meta_buffers", config.rx_meta_buffers_, queue.common_,
                 queue.common_.mrs_.size());
    for (const TxQueueConfig& queue : interface.tx_.queues_) {
      if (largest == nullptr || queue.common_.batch_size_ > largest->batch_size_)
        largest = &queue.common_;
      segments = std::max(segments, queue.common_.mrs_.size());
    }
  }
  if (largest != nullptr)
    use_bursts("tx_meta_buffers", config.tx_meta_buffers_, *largest, segments);
}

}  // namespace

bool holds_packets(const NetworkConfig& config, const std::string& region) {
  const auto has = [&](const auto& queues) {
    return std::ranges::any_of(queues, [&](const auto& queue) {
      return std::ranges::find(queue.common_.mrs_, region) != queue.common_.mrs_.end();
    });
  };
  return std::ranges::any_of(config.ifs_, [&](const InterfaceConfig& interface) {
    return has(interface.rx_.queues_) || has(interface.tx_.queues_);
  });
}

Error joined(const std::vector<Error>& found) {
  std::string text;
  for (const Error& each : found) text += (text.empty() ? "" : "\n") + std::string(each.what());
  return {found.front().status(), text};
}

void refuse(const std::vector<Error>& found) {
  if (!found.empty()) throw joined(found);
}

std::vector<Error> find_unsupported(const NetworkConfig& config, const EngineTraits& traits) {
  std::vector<Error> found;
  find_missing(config, traits, found);
  find_absent_gpu(config, found);
  return found;
}

std::vector<Error> find_absent(const NetworkConfig& config, const EngineEntry& entry) {
  const std::string missing = entry.missing();
  if (!missing.empty()) return {{Status::NOT_SUPPORTED, missing}};
  std::vector<Error> found;
  find_missing(config, entry.traits, found);
  return found;
}

std::vector<Error> find_rejected_here(const NetworkConfig& config, const EngineEntry& entry) {
  std::vector<Error> found;
  if (entry.make != nullptr && entry.traits.find_rejected_here != nullptr)
    entry.traits.find_rejected_here(config, found);
  return found;
}

std::vector<Error> find_refused(const NetworkConfig& config, const EngineEntry& entry) {
  std::vector<Error> found = find_absent(config, entry);
  find_absent_gpu(config, found);
  for (const Error& each : memory::find_absent(memory_regions(config))) found.push_back(each);
  find_oversized(config, 0, found);
  find_unmappable(config, entry.traits, found);
  // Of a configuration that is refused anyway, this host would only repeat the consequences.
  if (found.empty()) found = find_rejected_here(config, entry);
  return found;
}

std::uint64_t memory_needed(const NetworkConfig& config) {
  std::uint64_t needed = 0;
  for_each_allocation(config, [&](const Allocation& each) { needed += each.bytes; });
  return needed;
}

std::uint64_t address_space_needed(const NetworkConfig& config, const EngineTraits& traits) {
  /// For the threads of an unlimited stack, and as much as most systems give.
  constexpr std::uint64_t USUAL_STACK = 8U << 20U;
  rlimit stack{};
  const bool limited = getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != RLIM_INFINITY;
  // The housekeeper, and one for each queue, interface and core of a plan: some share one.
  std::uint64_t threads = 1;
  std::uint64_t rings = 0;
  for (const InterfaceConfig& interface : config.ifs_) {
    threads += 1 + interface.rx_.queues_.size() + interface.tx_.queues_.size();
    for (const ReorderConfig& plan : interface.rx_.reorder_configs_)
      threads += plan.cpu_cores_.size();
    if (traits.kernel_memory != nullptr) rings += traits.kernel_memory(config, interface).mapped;
  }
  for (const ReorderConfig& plan : config.reorder_configs_) threads += plan.cpu_cores_.size();
  return memory_needed(config) + rings + threads * (limited ? stack.rlim_cur : USUAL_STACK);
}

void find_unmappable(const NetworkConfig& config, const EngineTraits& traits,
                     std::vector<Error>& found) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::uint64_t used = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t left = limit.rlim_cur - std::min<std::uint64_t>(used, limit.rlim_cur);
  const std::uint64_t needed = address_space_needed(config, traits);
  if (needed <= left) return;
  found.emplace_back(Status::NO_FREE_PACKET_BUFFERS,
                     "memory regions, bursts, rings and threads need " + std::to_string(needed) +
                         " bytes of address space, and this process may map " +
                         std::to_string(left) +
                         " more (RLIMIT_AS); raise the limit (`ulimit -v unlimited`, LimitAS= of "
                         "systemd), or lower num_bufs, buf_size or batch_size");
}

void find_oversized(const NetworkConfig& config, std::uint64_t memory, std::vector<Error>& found) {
  if (memory == 0) {
    memory = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
             static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  }
  std::uint64_t needed = 0;
  for_each_allocation(config, [&](const Allocation& each) {
    const bool told = needed > memory;
    needed += each.bytes;
    if (told || needed <= memory) return;
    const std::string others =
        needed > each.bytes ? ", together with the items before it " + std::to_string(needed) : "";
    found.emplace_back(each.status, each.item + " needs " + std::to_string(each.bytes) +
                                        " bytes of memory" + others + ", and this machine has " +
                                        std::to_string(memory) + "; lower " + each.remedy);
  });
}

}  // namespace daqiri
