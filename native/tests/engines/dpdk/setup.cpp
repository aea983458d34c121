// Engine dpdk, with a virtual device that receives what it sends.
#include "engines/dpdk/dpdk_module.h"
#include "engines/engine_setup.h"

namespace {

using namespace daqiri;

NetworkConfig ring(const test::SuiteOptions& options) {
  NetworkConfig config = test::suite_config(options, false);
  test::use_dpdk(config, {"net_ring0"});
  return config;
}

const bool registered = [] {
  if (test::has_dpdk()) test::engine_setups().push_back({.name = "dpdk", .config = ring});
  return true;
}();

}  // namespace
