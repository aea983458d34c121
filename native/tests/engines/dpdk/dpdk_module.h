/// The module of engine dpdk, which not every build has.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "daqiri/config.h"
#include "engine/modules.h"
#include "session/loopback_config.h"
#include "session/session.h"

namespace daqiri::test {

/// Whether this build has the module, and can test it.
inline bool has_dpdk() {
#ifdef __SANITIZE_THREAD__
  // It does not see how DPDK's own code synchronises.
  return false;
#else
  const auto names = engines_with_module();
  return std::ranges::find(names, "dpdk") != names.end();
#endif
}

/// For a test to end at once.
inline bool lacks_dpdk() {
  if (has_dpdk()) return false;
  WARN("skipped: needs engine dpdk (libdpdk-dev), and no thread sanitizer");
  return true;
}

/// Two devices, of which the second receives what the first sends (DAQIRI_TEST_DPDK); none: there
/// are no such.
inline std::vector<std::string> given_devices() {
  const char* given = std::getenv("DAQIRI_TEST_DPDK");
  std::istringstream words(given == nullptr ? "" : given);
  std::vector<std::string> devices;
  for (std::string each; words >> each;) devices.push_back(each);
  return devices;
}

/// Make a configuration one of engine dpdk, with these devices for its interfaces.
inline void use_dpdk(NetworkConfig& config, const std::vector<std::string>& devices) {
  config.common_.loopback_ = LoopbackType::DISABLED;
  config.common_.engine = EngineType::DPDK;
  for (std::size_t i = 0; i < devices.size(); ++i) config.ifs_.at(i).address_ = devices[i];
}

/// A sender and a receiver.
inline NetworkConfig two_ports(const std::string& from, const std::string& to) {
  NetworkConfig config = loopback_config();
  config.ifs_.push_back(config.ifs_[0]);
  config.ifs_[1].name_ = "port1";
  config.ifs_[0].rx_ = {};
  config.ifs_[1].tx_ = {};
  use_dpdk(config, {from, to});
  return config;
}

/// Closes the session; everything must have come back.
inline void finish(Session& session) {
  session.close();
  for (int id = 0; id < static_cast<int>(session.config().ifs_.size()); ++id) {
    for (const auto& queue : session.port(id).rx) {
      while (Burst* burst = queue->receive()) burst->release();
      CHECK(balanced(queue->counters()));
    }
    for (const auto& queue : session.port(id).tx) CHECK(balanced(queue->counters()));
  }
  for (const auto& [name, region] : session.memory()->regions) {
    INFO(name);
    CHECK(region->available() == region->config().num_bufs_);
  }
}

}  // namespace daqiri::test
