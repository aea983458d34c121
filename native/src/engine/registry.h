/// The I/O engines of this process.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daqiri/config.h"
#include "daqiri/error.h"
#include "engine/traits.h"

namespace daqiri {

class IoEngine;

/// A registered engine.
struct EngineEntry {
  EngineTraits traits;
  /// Whether it is the engine for a configuration whose `common_` is resolved.
  bool (*serves)(const NetworkConfig& config);
  /// Null: known, but not part of this build.
  std::unique_ptr<IoEngine> (*make)(const NetworkConfig& config);

  /// Why this build does not contain it; empty: it does.
  [[nodiscard]] std::string missing() const;
};

/// Adds an engine; engines registered later take precedence, one that this build does not contain
/// never does. Define as a static object next to the
/// engine, so that adding an engine needs only its folder. Any thread, before sessions that use the
/// engine.
struct RegisteredEngine {
  explicit RegisteredEngine(const EngineEntry& entry) noexcept;
};

/// All engines, the last registered first. Engines of this build are registered from the start,
/// those of modules after they are loaded (engine/modules.h).
std::vector<EngineEntry> engines();

/// Of the engine with this name; none: there is no such engine.
std::optional<EngineTraits> traits_named(std::string_view name);

/// What this build or the engine rejects of the configuration, on any host.
std::vector<Error> find_absent(const NetworkConfig& config, const EngineEntry& entry);

/// What the engine rejects on this host as it is now; nothing where this build lacks the engine.
std::vector<Error> find_rejected_here(const NetworkConfig& config, const EngineEntry& entry);

/// Everything that the configuration requests and this build, the engine or this host does not
/// have: the engine itself, its features, kinds of memory, hugepages, enough memory; if it has all,
/// what the engine rejects here.
std::vector<Error> find_refused(const NetworkConfig& config, const EngineEntry& entry);

/// The engine for a configuration. Throws Error INTERNAL_ERROR if it was not validated.
EngineEntry engine_for(const NetworkConfig& config);

}  // namespace daqiri
