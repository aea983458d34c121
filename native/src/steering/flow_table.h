/// The flows of a port, which can be changed while it is running.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
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
};

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
  /// By InstalledFlow::key. Throws Error INVALID_PARAMETER if the flow was removed.
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

  void take_position(InstalledFlow& flow, Positions& positions) const;
  /// Stores the flows and positions of a published change.
  void use(Flows flows, Positions positions);
  void accept(Flows& flows, Positions& positions, std::span<Addition> added) const;
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
  mutable std::mutex mutex_;
  Flows flows_;
  Positions positions_;
};

}  // namespace daqiri::steering
