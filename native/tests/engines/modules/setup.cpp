// The odd engines, which are loaded from their module.
#include "engines/engine_setup.h"
#include "engines/modules/odd_module.h"

namespace {

using namespace daqiri;

template <const auto& NAME>
NetworkConfig odd_config(const test::SuiteOptions& options) {
  NetworkConfig config = test::suite_config(options, false);
  test::use_odd_engine(config, NAME);
  return config;
}

constexpr char PLAIN[] = "odd", FLOWS[] = "odd_flows", DEVICE[] = "odd_device",
               PACING[] = "odd_pacing";

const test::RegisteredSetup plain{
    {.name = PLAIN, .config = odd_config<PLAIN>, .whole_packets = true}};
const test::RegisteredSetup flows{
    {.name = FLOWS, .config = odd_config<FLOWS>, .whole_packets = true}};
const test::RegisteredSetup device{
    {.name = DEVICE, .config = odd_config<DEVICE>, .whole_packets = true}};
const test::RegisteredSetup pacing{
    {.name = PACING, .config = odd_config<PACING>, .whole_packets = true}};

}  // namespace
