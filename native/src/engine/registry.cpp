#include "engine/registry.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "daqiri/error.h"
#include "engine/modules.h"

namespace daqiri {

namespace {

constexpr auto ENGINE_NAME = [](const EngineEntry& entry) { return entry.traits.name; };

std::mutex mutex;

/// Called with the mutex held. Made at first use, because static objects of other files register
/// engines.
std::vector<EngineEntry>& entries() {
  static std::vector<EngineEntry> all;
  return all;
}

}  // namespace

std::string EngineEntry::missing() const {
  if (make != nullptr) return {};
  if (const std::string problem = load_engine(traits.name); !problem.empty())
    return "engine '" + std::string(traits.name) + "': " + problem;
  return "engine '" + std::string(traits.name) +
         "' is not part of this build; use engine 'packet', a socket stream or `loopback: sw`";
}

RegisteredEngine::RegisteredEngine(const EngineEntry& entry) noexcept {
  const std::lock_guard lock(mutex);
  std::vector<EngineEntry>& all = entries();
  const auto known = std::ranges::find(all, entry.traits.name, ENGINE_NAME);
  if (known != all.end()) {
    // Static objects of different files are made in any order.
    if (entry.make == nullptr) return;
    all.erase(known);
  }
  all.insert(all.begin(), entry);
}

std::vector<EngineEntry> engines() {
  const std::lock_guard lock(mutex);
  return entries();
}

std::optional<EngineTraits> traits_named(std::string_view name) {
  const std::lock_guard lock(mutex);
  const auto found = std::ranges::find(entries(), name, ENGINE_NAME);
  return found == entries().end() ? std::nullopt : std::optional(found->traits);
}

EngineEntry engine_for(const NetworkConfig& config) {
  for (const EngineEntry& each : engines()) {
    if (each.serves(config)) return each;
  }
  throw Error(Status::INTERNAL_ERROR,
              "the configuration was not validated: its engine is not resolved");
}

}  // namespace daqiri
