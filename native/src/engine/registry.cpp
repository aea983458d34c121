#include "engine/registry.h"

#include <mutex>
#include <string>

#include "daqiri/error.h"

namespace daqiri {

namespace {

/// An engine that a configuration can name, but this build does not contain. Its configurations are
/// still validated.
template <EngineType TYPE>
EngineEntry absent(std::string_view name, bool polls_without_pause) {
  return {{.name = name,
           .polls_without_pause = polls_without_pause,
           .rx_descriptors = 8192,
           .device_memory = true},
          [](const NetworkConfig& config) {
            const CommonConfig& common = config.common_;
            const bool rdma = TYPE == EngineType::IBVERBS && common.engine_type == EngineType::RDMA;
            return common.loopback_ == LoopbackType::DISABLED &&
                   (common.engine_type == TYPE || rdma);
          },
          nullptr};
}

std::mutex mutex;

/// Called with the mutex held. Made at first use, because static objects of other files register
/// engines.
std::vector<EngineEntry>& entries() {
  static std::vector<EngineEntry> all{absent<EngineType::IBVERBS>("ibverbs", true),
                                      absent<EngineType::DPDK>("dpdk", true)};
  return all;
}

}  // namespace

std::string EngineEntry::missing() const {
  if (make != nullptr) return {};
  return "engine '" + std::string(traits.name) +
         "' is not part of this build; use engine 'packet', a socket stream or `loopback: sw`";
}

RegisteredEngine::RegisteredEngine(const EngineEntry& entry) noexcept {
  const std::lock_guard lock(mutex);
  std::vector<EngineEntry>& all = entries();
  std::erase_if(all,
                [&](const EngineEntry& each) { return each.traits.name == entry.traits.name; });
  all.insert(all.begin(), entry);
}

std::vector<EngineEntry> engines() {
  const std::lock_guard lock(mutex);
  return entries();
}

EngineEntry engine_for(const NetworkConfig& config) {
  for (const EngineEntry& each : engines()) {
    if (each.serves(config)) return each;
  }
  throw Error(Status::INTERNAL_ERROR,
              "the configuration was not validated: its engine is not resolved");
}

}  // namespace daqiri
