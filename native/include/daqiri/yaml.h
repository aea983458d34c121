/// Configurations as nodes of yaml-cpp, where its headers are found. A program that converts links
/// yaml-cpp; others need not.
#pragma once

#if __has_include(<yaml-cpp/yaml.h>)

#include <yaml-cpp/yaml.h>

#include "daqiri/config.h"

namespace YAML {

/// `node.as<daqiri::NetworkConfig>()`, and back.
template <>
struct convert<daqiri::NetworkConfig> {
  /// As config_to_yaml writes it.
  static Node encode(const daqiri::NetworkConfig& config) {
    return Load(daqiri::config_to_yaml(config));
  }
  /// False where load_config_text reports errors.
  static bool decode(const Node& node, daqiri::NetworkConfig& config) {
    return daqiri::load_config_text(Dump(node), "<node>", config).ok();
  }
};

}  // namespace YAML

#endif
