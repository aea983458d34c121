/// Checks whether flows can be added to a port.
#pragma once

#include <span>

#include "daqiri/config.h"
#include "engine/traits.h"
#include "io/io_engine.h"
#include "steering/flow_table.h"

namespace daqiri {

/// Validates flows as if they were the only ones in the configuration of their port, and completes
/// them with derived values. Each flow that is wrong, or that the engine does not support, is
/// rejected with its reason.
void check_additions(const NetworkConfig& config, const EngineTraits& traits, const Port& port,
                     std::span<steering::Addition> additions);

}  // namespace daqiri
