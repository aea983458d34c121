/// Configurations of engine 'packet' that no host opens, or this one does not.
#pragma once

#include <vector>

#include "daqiri/config.h"
#include "daqiri/error.h"

namespace daqiri::packet {

/// Whether an interface receives by AF_XDP or not at all.
bool wants_xdp(const InterfaceConfig& interface) noexcept;
/// Whether a network card has to begin with timestamps of all frames.
bool switches_timestamps_on(const InterfaceConfig& interface) noexcept;

/// EngineTraits::find_rejected and find_rejected_here.
void find_rejected(const NetworkConfig& config, std::vector<Error>& found);
void find_rejected_here(const NetworkConfig& config, std::vector<Error>& found);

}  // namespace daqiri::packet
