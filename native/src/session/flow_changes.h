/// Flows that are added, deleted and replaced while a session runs.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daqiri/flow_ops.h"
#include "daqiri/flows.h"
#include "engine/traits.h"
#include "io/io_engine.h"
#include "steering/flow_table.h"

namespace daqiri {

class Session;

/// An operation that has ended, and why it failed.
struct EndedFlowOp {
  FlowOpResult result;
  std::string reason{};
};

/// Any thread. A separate thread performs the operations in the order in which they were started.
/// Operations that wait together are one change of a port's flows, which is compiled once.
class FlowChanges {
 public:
  /// Begun and not polled; one more is refused.
  static constexpr std::size_t MOST_OPS = 65536;

  explicit FlowChanges(const Session& session);
  FlowChanges(const FlowChanges&) = delete;
  FlowChanges& operator=(const FlowChanges&) = delete;
  ~FlowChanges() { stop(); }

  /// Throw Error for what is known at once; the rest is in the result.
  FlowOpId begin_add(int port, std::vector<FlowRuleConfig> rules, FlowOpType type);
  FlowOpId begin_delete(FlowId flow);
  /// The one that ended first; none: none has.
  std::optional<EndedFlowOp> poll();

  /// At once; their names are theirs alone. Throws Error with the reasons of all that are not
  /// accepted; none is added then.
  std::vector<steering::Addition> add(int port, const std::vector<FlowRuleConfig>& rules);
  void remove(FlowId flow);
  /// The flows of the configuration become those of `wanted`, which is the same otherwise. Throws
  /// Error, NOT_SUPPORTED where that takes a new session; nothing is changed then.
  void configure(NetworkConfig wanted);
  /// Throws what `configure` would, and changes nothing.
  void check(NetworkConfig wanted) const { static_cast<void>(checked(std::move(wanted))); }

  /// Whether flows may have transforms.
  [[nodiscard]] bool transforms() const noexcept { return traits_.transforms; }

  /// What has not begun never will. Idempotent.
  void stop() noexcept;

 private:
  struct Op {
    FlowOpResult result;
    Port* port;
    std::vector<FlowRuleConfig> rules;
  };

  [[nodiscard]] Port& changeable_port(int port) const;
  /// The port of a flow that was added, which is deleted once. Throws Error.
  Port& take_installed(FlowId flow);
  void require_running() const;
  /// With all that validation derives. Throws Error.
  [[nodiscard]] NetworkConfig checked(NetworkConfig wanted) const;
  FlowOpId begin(Op op);
  void run(const std::stop_token& stop) noexcept;
  /// Operations of one port.
  void serve(Port& port, std::span<Op> ops) noexcept;
  /// With ids and all that validation derives; those that are wrong say why.
  [[nodiscard]] std::vector<steering::Addition> additions_of(
      const Port& port, const std::vector<FlowRuleConfig>& rules);

  const Session& session_;
  const EngineTraits traits_;
  /// Over `configure`.
  std::mutex configuring_;
  mutable std::mutex mutex_;
  std::condition_variable_any begun_;
  bool stopped_{false};
  FlowOpId last_op_{0};
  FlowId next_flow_{MAX_STATIC_FLOW_ID + 1};
  /// Flows that were added, and are not being deleted.
  std::map<FlowId, Port*> installed_;
  std::deque<Op> pending_;
  std::deque<EndedFlowOp> ended_;
  std::size_t num_ops_{0};
  /// Last: it ends before the rest goes.
  std::jthread thread_;
};

}  // namespace daqiri
