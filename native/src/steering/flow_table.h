/// The flows of a port, which can be changed while it runs.
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

/// A flow that is to be added at run time.
struct Addition {
  /// With its id.
  FlowConfig flow;
  /// No other flow of the port may have its name.
  bool own_name{false};
  /// InstalledFlow::key, once it was added.
  std::uint64_t key{0};
  /// Why it was not added.
  std::optional<Error> refused{};
};

/// A flow that packets are steered to.
struct InstalledFlow {
  std::shared_ptr<const FlowConfig> config;
  /// Added at run time; else one of the configuration.
  bool added{false};
  /// Where it is counted.
  std::uint16_t position{NO_FLOW};
  /// No other flow of the port ever has it.
  std::uint64_t key{0};
  /// What was counted there before, of others.
  FlowSnapshot before{};
};

/// Flows that were added come first, the newest of them at the front; behind them those of the
/// configuration in file order. A change is compiled and published as a whole: each packet is
/// steered by the flows before it or by those after it.
///
/// A flow of the configuration that is changed keeps its counters. Those of a flow that is removed
/// become part of `removed`. Any thread.
class FlowTable {
 public:
  /// Publishes the flows of the configuration.
  FlowTable(const InterfaceConfig& config, Steering& steering);

  /// What becomes of a change of which a flow is not accepted.
  enum class Whole : std::uint8_t { ALL_OR_NOTHING, ALL_THAT_ARE_ACCEPTED };

  /// Takes out those that were added as `removed`, then puts others in. When it returns, no packet
  /// is steered by what was before. A flow that is not accepted says why. Throws Error or
  /// std::bad_alloc, and nothing is changed then.
  void change(std::span<const FlowId> removed, std::span<Addition> added, Whole whole);
  /// Throws Error where `configure` would: where they have a name of a flow that was added.
  void require_acceptable(const std::vector<FlowConfig>& flows) const;
  /// Replaces the flows of the configuration, likewise. Those of one name are the same flow.
  void configure(const std::vector<FlowConfig>& flows);

  /// In their order.
  [[nodiscard]] std::vector<InstalledFlow> installed() const;
  /// Those of the configuration in file order, then those that were added from the oldest on.
  [[nodiscard]] std::vector<InstalledFlow> listed() const;
  /// The flows of the configuration as they are now.
  [[nodiscard]] std::vector<FlowConfig> configured() const;
  [[nodiscard]] FlowSnapshot counts(const InstalledFlow& flow) const;
  /// By InstalledFlow::key. Throws Error INVALID_PARAMETER for one that was removed.
  [[nodiscard]] FlowSnapshot counts(std::uint64_t key) const;
  /// Of all flows that were removed; none: there is none.
  [[nodiscard]] std::optional<FlowSnapshot> removed() const;

 private:
  using Flows = std::vector<InstalledFlow>;

  /// Positions are used again late: packets that were steered to a flow may wait for a while until
  /// they are counted.
  struct Positions {
    std::uint32_t next{0};
    std::deque<std::uint16_t> free{};
    std::uint64_t next_key{0};
  };

  void take_position(InstalledFlow& flow, Positions& positions) const;
  /// Compiles and publishes what `flows` has, and keeps it.
  void use(Flows flows, Positions positions);
  void accept(Flows& flows, Positions& positions, std::span<Addition> added) const;
  void refuse_taken_names(const Flows& flows, std::span<Addition> added) const;
  /// Refuses those of `added` that do what another that was added does; true: there are none.
  bool refuse_doubles(const Flows& flows, const std::vector<Unreachable>& unreachable,
                      std::span<Addition> added) const;
  [[nodiscard]] std::shared_ptr<const Program> compile(const Flows& flows,
                                                       std::vector<Unreachable>* unreachable) const;

  const InterfaceConfig& config_;
  Steering& steering_;
  /// One change after the other; before `mutex_`. Only a change writes what follows.
  std::mutex changing_;
  mutable std::mutex mutex_;
  Flows flows_;
  Positions positions_;
};

}  // namespace daqiri::steering
