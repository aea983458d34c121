// Part of the library: configurations for the engine are checked where its module is not installed.
#include "engine/registry.h"
#include "engines/dpdk/traits.h"

namespace daqiri {

namespace {

const RegisteredEngine declared{{dpdk::TRAITS, dpdk::is_chosen, nullptr}};

}  // namespace

}  // namespace daqiri
