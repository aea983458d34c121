#include "engines/engine_setup.h"

namespace {

using namespace daqiri;

NetworkConfig loopback(const test::SuiteOptions& options) {
  NetworkConfig config = test::suite_config(options, false);
  config.common_.loopback_ = LoopbackType::SW;
  config.ifs_[0].address_ = "loopback";
  return config;
}

const test::RegisteredSetup setup{{.name = "loopback", .config = loopback}};

}  // namespace
