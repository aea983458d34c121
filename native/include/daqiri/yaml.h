/// Conversion of configurations to and from yaml-cpp nodes, if the headers of yaml-cpp are
/// installed. Programs that use it must link yaml-cpp; other programs need not.
#pragma once

#if __has_include(<yaml-cpp/yaml.h>)

#include <yaml-cpp/yaml.h>

#include "daqiri/config.h"

namespace YAML {

/// Implements `node.as<daqiri::NetworkConfig>()` and the conversion to a node.
template <>
struct convert<daqiri::NetworkConfig> {
  /// Convert with config_to_yaml.
  static Node encode(const daqiri::NetworkConfig& config) {
    return Load(daqiri::config_to_yaml(config));
  }
  /// Convert with load_config_text; returns false if it reports errors.
  static bool decode(const Node& node, daqiri::NetworkConfig& config) {
    return daqiri::load_config_text(Dump(node), "<node>", config).ok();
  }
};

}  // namespace YAML

#endif
