// Engine odd, which is loaded from its module.
#include "engines/engine_setup.h"
#include "engines/modules/odd_module.h"

namespace {

using namespace daqiri;

NetworkConfig odd_config(const test::SuiteOptions& options) {
  test::use_modules(test::odd_module().parent_path());
  NetworkConfig config = test::suite_config(options, false);
  config.common_.engine = EngineType::OTHER;
  config.common_.engine_name_ = "odd";
  config.ifs_[0].address_ = "odd0";
  return config;
}

const test::RegisteredSetup setup{{.name = "odd", .config = odd_config, .whole_packets = true}};

}  // namespace
