/// Rules of a device (rte_flow) for the receive flows of a port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "steering/flow_table.h"
#include "steering/patterns.h"

struct rte_flow;

namespace daqiri::dpdk {

/// Rules bring the packets of a flow to the queues of the device that the flow's cores read. The
/// program still decides what a packet is, so that flow ids, queues, counters and transforms do not
/// depend on rules. Therefore
/// - rules need no order: where flows overlap, the device may use the rule of any,
/// - a flow without rules costs time, namely the hand-over of its packets between cores,
/// - while flows change, rules may differ from the program.
///
/// Only isolation needs rules for all flows, since other packets stay with the kernel: while a flow
/// has none, a rule of the lowest priority takes every packet.
class FlowRules {
 public:
  /// Which queues of the device the cores of a flow read.
  using QueuesOf = std::function<std::vector<std::uint16_t>(const FlowConfig& flow)>;

  FlowRules(std::uint16_t device, const InterfaceConfig& interface);
  FlowRules(const FlowRules&) = delete;
  FlowRules& operator=(const FlowRules&) = delete;
  /// The device is open. In a child made by fork(2), leaves the rules to the parent.
  ~FlowRules();

  /// With flow_isolation, let the device leave packets of no flow to the kernel, if it can, and has
  /// rules for all flows of the configuration. Before its start.
  void isolate();
  /// Creates and destroys rules on the running device. Sets `offload` of new flows.
  void install(steering::FlowUpdate& update, const QueuesOf& queues_of);

 private:
  using Rules = std::vector<rte_flow*>;
  struct NewRules;

  /// Why there is no rule; empty: there is.
  std::string create(const steering::Pattern& pattern, const std::vector<std::uint16_t>& queues,
                     std::uint32_t priority, Rules& rules) const;
  /// For a flow: rules for all of its patterns, or none.
  std::string create(const FlowConfig& flow, const QueuesOf& queues_of, Rules& rules) const;
  /// The same, when nothing may fail any more: `why` stays as it is if memory is missing.
  void retry(const FlowConfig& flow, const QueuesOf& queues_of, Rules& rules,
             std::string& why) const noexcept;
  void destroy(Rules& rules) const noexcept;

  std::uint16_t device_;
  const InterfaceConfig& interface_;
  /// Whether the device keeps the packets that no rule takes.
  bool isolated_{false};
  /// By InstalledFlow::key.
  std::unordered_map<std::uint64_t, Rules> rules_;
  /// Takes every packet.
  Rules everything_;
};

}  // namespace daqiri::dpdk
