/// Configurations of sockets that no host opens, or this one does not.
#pragma once

#include <vector>

#include "daqiri/config.h"
#include "daqiri/error.h"

namespace daqiri::sockets {

bool is_tcp(const InterfaceConfig& interface);

/// EngineTraits::find_rejected and find_rejected_here.
void find_rejected(const NetworkConfig& config, std::vector<Error>& found);
void find_rejected_here(const NetworkConfig& config, std::vector<Error>& found);

}  // namespace daqiri::sockets
