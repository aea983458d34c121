/// Engines of odd_engine.cpp, for tests of what only they do.
#pragma once

#include <atomic>
#include <cstdint>

#include "daqiri/config.h"

namespace daqiri::test {

inline constexpr const char* ODD_ENGINES[] = {"odd", "odd_flows", "odd_device", "odd_pacing"};

/// Make an interface's configuration one of such an engine.
void name_odd_engine(NetworkConfig& config, const char* name);

/// Most packets that a worker has offered in one call.
extern std::atomic<std::uint32_t> odd_most_offered;

}  // namespace daqiri::test
