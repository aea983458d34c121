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

/// A completed operation, and why it failed.
struct EndedFlowOp {
  FlowOpResult result;
  std::string reason{};
};

/// Any thread. A separate thread performs the operations in the order in which they were started.
/// Operations that wait at the same time become one change of a port's flows, which is compiled
/// once.
class FlowChanges {
 public:
  /// Limit of operations that were started and not polled; more are rejected.
  static constexpr std::size_t MOST_OPS = 65536;

  explicit FlowChanges(const Session& session);
  FlowChanges(const FlowChanges&) = delete;
  FlowChanges& operator=(const FlowChanges&) = delete;
  ~FlowChanges() { stop(); }

  /// Start an operation. Throws Error if the request is invalid; other errors are in the result.
  FlowOpId begin_add(int port, std::vector<FlowRuleConfig> rules, FlowOpType type);
  FlowOpId begin_delete(FlowId flow);
  /// Return the operation that completed first; none if no operation has completed.
  std::optional<EndedFlowOp> poll();

  /// Add flows immediately. Their names must be unique. Throws Error with all reasons if a flow is
  /// rejected; no flow is added then.
  std::vector<steering::Addition> add(int port, const std::vector<FlowRuleConfig>& rules);
  void remove(FlowId flow);
  /// Replace the flows of the configuration by those of `wanted`, which must be equal otherwise.
  /// Throws Error, NOT_SUPPORTED if the change requires a new session; nothing is changed then.
  void configure(NetworkConfig wanted);
  /// Throws what `configure` would throw; changes nothing.
  void check(NetworkConfig wanted) const { static_cast<void>(checked(std::move(wanted))); }

  /// Whether flows may have transforms.
  [[nodiscard]] bool transforms() const noexcept { return traits_.transforms; }

  /// Operations that have not begun are not performed. Idempotent.
  void stop() noexcept;

 private:
  struct Op {
    FlowOpResult result;
    Port* port;
    std::vector<FlowRuleConfig> rules;
  };

  [[nodiscard]] Port& changeable_port(int port) const;
  /// Return the port of an added flow and remove it from `installed_`, so that it is deleted once.
  /// Throws Error.
  Port& take_installed(FlowId flow);
  void require_running() const;
  /// Return the configuration with derived values. Throws Error.
  [[nodiscard]] NetworkConfig checked(NetworkConfig wanted) const;
  FlowOpId begin(Op op);
  void run(const std::stop_token& stop) noexcept;
  /// Perform operations of one port.
  void serve(Port& port, std::span<Op> ops) noexcept;
  /// Return the flows with ids and derived values; each rejected flow has its reason.
  [[nodiscard]] std::vector<steering::Addition> additions_of(
      const Port& port, const std::vector<FlowRuleConfig>& rules);

  const Session& session_;
  const EngineTraits traits_;
  /// Held during `configure`.
  std::mutex configuring_;
  mutable std::mutex mutex_;
  std::condition_variable_any begun_;
  bool stopped_{false};
  FlowOpId last_op_{0};
  FlowId next_flow_{MAX_STATIC_FLOW_ID + 1};
  /// Flows that were added and are not being deleted.
  std::map<FlowId, Port*> installed_;
  std::deque<Op> pending_;
  std::deque<EndedFlowOp> ended_;
  std::size_t num_ops_{0};
  /// Last member, so that the thread ends before the others are destroyed.
  std::jthread thread_;
};

}  // namespace daqiri
