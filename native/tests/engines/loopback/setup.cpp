#include "engines/engine_setup.h"

namespace {

using namespace daqiri;

template <bool DROPS>
NetworkConfig loopback(const test::SuiteOptions& options) {
  NetworkConfig config = test::suite_config(options, false);
  config.common_.loopback_ = LoopbackType::LOOPBACK_TYPE_SW;
  config.common_.loopback_drops_ = DROPS;
  config.ifs_[0].address_ = "loopback";
  return config;
}

NetworkConfig direct(const test::SuiteOptions& options) {
  NetworkConfig config = loopback<false>(options);
  test::make_direct(config.ifs_[0]);
  return config;
}

const test::RegisteredSetup polled{
    {.name = "loopback, polled by its callers", .config = direct, .waits = true, .direct = true}};
const test::RegisteredSetup waiting{{.name = "loopback", .config = loopback<false>, .waits = true}};
const test::RegisteredSetup dropping{{.name = "loopback that drops", .config = loopback<true>}};

}  // namespace
