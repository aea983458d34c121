/// The io engines of this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daqiri/config.h"
#include "daqiri/error.h"
#include "engine/traits.h"

namespace daqiri {

class IoEngine;

/// An engine as it registers itself.
struct EngineEntry {
  EngineTraits traits;
  /// Whether it is the one for a configuration, whose `common_` is resolved.
  bool (*serves)(const NetworkConfig& config);
  /// Null: known, but not part of this build.
  std::unique_ptr<IoEngine> (*make)(const NetworkConfig& config);

  /// Why this build cannot make it; empty: it can.
  [[nodiscard]] std::string missing() const;
};

/// Adds an engine; engines registered later take precedence. Define it as a static object next to
/// the engine, so that an engine is added by its folder alone. Any thread, before sessions that use
/// the engine.
struct RegisteredEngine {
  explicit RegisteredEngine(const EngineEntry& entry) noexcept;
};

/// All of them, the last first. What an engine folder registers is there from the start.
std::vector<EngineEntry> engines();

/// What this build or the engine rejects of the configuration, on any host.
std::vector<Error> find_absent(const NetworkConfig& config, const EngineEntry& entry);

/// What the engine rejects on this host as it is now; nothing where this build lacks the engine.
std::vector<Error> find_rejected_here(const NetworkConfig& config, const EngineEntry& entry);

/// Throws Error for everything that the configuration asks for and this build, the engine or this
/// host does not have, a line each: the engine itself, its features, kinds of memory, hugepages.
void refuse_absent(const NetworkConfig& config, const EngineEntry& entry);

/// The engine for a configuration. Throws Error INTERNAL_ERROR for one that was not validated.
EngineEntry engine_for(const NetworkConfig& config);

}  // namespace daqiri
