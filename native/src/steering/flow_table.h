/// The flows of a port, which can be changed while it is running.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daqiri/config.h"
#include "daqiri/error.h"
#include "metrics/counters.h"
#include "steering/steering.h"

namespace daqiri::steering {

/// A flow to add at run time.
struct Addition {
  /// Includes its id.
  FlowConfig flow;
  /// Whether its name must be unique on the port.
  bool own_name{false};
  /// See InstalledFlow::key; set after it was added.
  std::uint64_t key{0};
  /// Why it was not added.
  std::optional<Error> refused{};
};

/// A flow that is in use.
struct InstalledFlow {
  std::shared_ptr<const FlowConfig> config;
  /// Added at run time; false: from the configuration.
  bool added{false};
  /// Position of its counters.
  std::uint16_t position{NO_FLOW};
  /// Unique among all flows of the port, never reused.
  std::uint64_t key{0};
  /// Counts of earlier flows at the same position.
  FlowSnapshot before{};
  /// What, apart from the program, selects its packets, such as "xdp"; empty: nothing does. Set by
  /// the engine.
  std::string_view offload{};
  /// Why nothing does, from the engine and its hardware; empty: it has no choice.
  std::string offload_reason{};
};

/// A change of a port's flows, for an engine whose hardware, or kernel, steers too.
struct FlowUpdate {
  /// All flows after the change, in their order: the first one that matches a packet is used. The
  /// engine sets `offload` and `offload_reason` of those that are new or changed.
  std::span<InstalledFlow> flows;
  /// Those that are new or changed, as indices of `flows`.
  std::vector<std::size_t> added{};
  /// Those that end or are changed, as they were.
  std::vector<InstalledFlow> removed{};
  /// Set by the engine: the flows that it cannot have, as indices of `flows`, and why. The update
  /// is then repeated without them.
  std::vector<std::pair<std::size_t, Error>> refused{};
};

/// Makes an update take effect before the program that steers by it is published. An engine that
/// refuses flows, or throws, has changed nothing. May block.
using InstallFlows = std::function<void(FlowUpdate& update)>;

/// Added flows are first, the newest at the front, followed by those of the configuration in file
/// order. A change is compiled and published as a whole: each packet is steered either by the flows
/// before it or by those after it.
///
/// A flow of the configuration that is changed keeps its counters. The counters of removed flows
/// are added to `removed`. Any thread.
class FlowTable {
 public:
  /// Publishes the flows of the configuration.
  FlowTable(const InterfaceConfig& config, Steering& steering);

  /// Installs the flows, and those of every change from now on. Throws Error if a flow is refused.
  void attach(InstallFlows install);
  /// The engine closes: wait for a change in progress, and install no more.
  void detach() noexcept;

  /// What to do with a change if one of its flows is rejected.
  enum class Whole : std::uint8_t { ALL_OR_NOTHING, ALL_THAT_ARE_ACCEPTED };

  /// Removes the added flows in `removed`, then adds others. On return, no packet is steered by the
  /// previous flows. A rejected flow contains the reason. Throws Error or std::bad_alloc without a
  /// change.
  void change(std::span<const FlowId> removed, std::span<Addition> added, Whole whole);
  /// Throws Error like `configure`, for example if a name is that of an added flow.
  void require_acceptable(const std::vector<FlowConfig>& flows) const;
  /// Replaces the flows of the configuration in the same way. Flows with the same name are the same
  /// flow.
  void configure(const std::vector<FlowConfig>& flows);

  /// All flows, in their order.
  [[nodiscard]] std::vector<InstalledFlow> installed() const;
  /// Flows of the configuration in file order, then added flows, oldest first.
  [[nodiscard]] std::vector<InstalledFlow> listed() const;
  /// The current flows of the configuration.
  [[nodiscard]] std::vector<FlowConfig> configured() const;
  [[nodiscard]] FlowSnapshot counts(const InstalledFlow& flow) const;
  /// By InstalledFlow::key. Throw Error INVALID_PARAMETER if the flow was removed.
  [[nodiscard]] InstalledFlow find(std::uint64_t key) const;
  [[nodiscard]] FlowSnapshot counts(std::uint64_t key) const;
  /// Sum over all removed flows; none: no flow was removed.
  [[nodiscard]] std::optional<FlowSnapshot> removed() const;

 private:
  using Flows = std::vector<InstalledFlow>;

  /// Positions are reused late, because packets that were steered to a flow may be counted with a
  /// delay.
  struct Positions {
    std::uint32_t next{0};
    std::deque<std::uint16_t> free{};
    std::uint64_t next_key{0};
  };

  /// Called with the lock held.
  [[nodiscard]] const InstalledFlow& locate(std::uint64_t key) const;
  void take_position(InstalledFlow& flow, Positions& positions) const;
  /// Stores the flows and positions of a published change.
  void use(Flows flows, Positions positions);
  void accept(Flows& flows, Positions& positions, std::span<Addition> added) const;
  /// Returns the flows that the engine refuses, as indices of `next`, and why.
  std::vector<std::pair<std::size_t, Error>> install(Flows& next) const;
  void refuse_taken_names(const Flows& flows, std::span<Addition> added) const;
  /// Rejects those of `added` that are duplicates of another added flow. Returns true if there are
  /// none.
  bool refuse_doubles(const Flows& flows, const std::vector<Unreachable>& unreachable,
                      std::span<Addition> added) const;
  [[nodiscard]] std::shared_ptr<const Program> compile(const Flows& flows,
                                                       std::vector<Unreachable>* unreachable) const;

  const InterfaceConfig& config_;
  Steering& steering_;
  /// Held during a change; locked before `mutex_`. Only a change writes the members below.
  std::mutex changing_;
  InstallFlows install_;
  mutable std::mutex mutex_;
  Flows flows_;
  Positions positions_;
};

}  // namespace daqiri::steering
