/// What must hold between the values of a configuration, and what follows from them.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "config/findings.h"
#include "daqiri/config.h"
#include "engine/traits.h"

namespace daqiri::config {

/// Those of the engine that serves the configuration; of none while that is not known.
EngineTraits traits_of(const NetworkConfig& config) noexcept;

/// What the rules work on.
struct Subject {
  Subject(NetworkConfig& subject, Findings& reported);

  NetworkConfig& config;
  Findings& findings;

  [[nodiscard]] bool raw() const { return config.common_.stream_type == StreamType::RAW; }
  /// Of the engine, once it is resolved.
  [[nodiscard]] EngineTraits traits() const { return traits_of(config); }
  [[nodiscard]] bool in_memory() const { return config.common_.loopback_ == LoopbackType::SW; }
  /// Null when there is no such region. While some region's name is wrong or taken, `regions_known`
  /// is false and a reference to a name that is not there is no second mistake.
  [[nodiscard]] const MemoryRegionConfig* region(const std::string& name) const;
  bool regions_known{true};
  /// False: the endpoints are wrong or missing, and CommonConfig::protocol is a guess.
  bool transport_known{true};

 private:
  std::map<std::string_view, std::size_t> regions_;
};

/// All rules, in an order in which the later ones can use what the earlier ones derive.
void apply_rules(NetworkConfig& config, Findings& findings);

void check_regions(Subject& subject);
void check_interfaces(Subject& subject);
/// Transport of a socket stream: CommonConfig::protocol, also filled into endpoints without a
/// scheme.
void resolve_transport(Subject& subject);
/// CommonConfig::engine_type.
void resolve_engine(Subject& subject);
void check_sockets(Subject& subject);
void check_queues(Subject& subject);
/// Give regions of raw queues the buffers that their rings need.
void raise_num_bufs(Subject& subject);
void check_flows(Subject& subject);
void check_reorder(Subject& subject);

/// Report names of a list that stand in it before. `name_of(i)` names element `i`.
template <class List>
void check_unique_names(Findings& findings, const std::string& path, std::string_view list_name,
                        const List& list) {
  std::map<std::string_view, std::size_t> first;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string name_path = join(element(path, list_name, i), "name");
    if (findings.bad(name_path)) continue;
    const auto [seen, is_new] = first.emplace(list[i].name_, i);
    if (!is_new) {
      findings.error(name_path, "found " + quoted(list[i].name_) + ", also the name of " +
                                    element(path, list_name, seen->second) +
                                    "; accepts a name of its own");
    }
  }
}

}  // namespace daqiri::config
