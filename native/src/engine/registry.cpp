#include "engine/registry.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "daqiri/error.h"

namespace daqiri {

namespace {

template <EngineType TYPE>
bool serves(const NetworkConfig& config) {
  return config.common_.loopback_ == LoopbackType::NONE && config.common_.engine_type == TYPE;
}

/// What a configuration may name and this build has no folder for. Their files are validated, too.
EngineTraits absent(std::string_view name, bool polls_without_pause) {
  EngineTraits traits;
  traits.name = name;
  traits.polls_without_pause = polls_without_pause;
  traits.rx_descriptors = 8192;
  return traits;
}

struct Registry {
  std::mutex mutex;
  std::vector<EngineEntry> entries{
      {absent("packet", false), serves<EngineType::PACKET>, nullptr,
       "the AF_PACKET engine, which is not written yet"},
      {absent("ibverbs", true), serves<EngineType::IBVERBS>, nullptr,
       "rdma-core (Debian: libibverbs-dev, librdmacm-dev)"},
      {absent("dpdk", true), serves<EngineType::DPDK>, nullptr, "DPDK (Debian: libdpdk-dev)"}};
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

std::string EngineEntry::missing() const {
  if (make != nullptr) return {};
  std::string text = "engine '";
  text.append(traits.name).append("' is not part of this build: it needs ").append(needs);
  return text.append("; use `loopback: sw`, or a socket stream");
}

void register_engine(const EngineEntry& entry) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.entries,
                [&](const EngineEntry& each) { return each.traits.name == entry.traits.name; });
  all.entries.insert(all.entries.begin(), entry);
}

std::vector<EngineEntry> engines() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.entries;
}

EngineEntry engine_for(const NetworkConfig& config) {
  const std::vector<EngineEntry> all = engines();
  const auto it = std::find_if(all.begin(), all.end(),
                               [&](const EngineEntry& each) { return each.serves(config); });
  if (it != all.end()) return *it;
  throw Error(Status::INTERNAL_ERROR,
              "the configuration was not validated: its engine is not resolved");
}

}  // namespace daqiri
